"""What a verdict knows of a finished fit, and the means to fit again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mixtree.data.labelscale import LabelScale
from mixtree.data.sources import Rows, Sources
from mixtree.metrics import Metric
from mixtree.policies.setting import Setting
from mixtree.search import SearchBase
from mixtree.stats.intervals import Role
from mixtree.trainer import Evaluation


class Fitted(Protocol):
    """A fit that has run. Whoever fits gives it; the verdict trains nothing by other means."""

    @property
    def policy(self) -> str:
        """Its id."""

    @property
    def search(self) -> SearchBase: ...

    @property
    def trainer(self) -> Any: ...

    @property
    def objective(self) -> Callable[[Evaluation], Evaluation] | None:
        """What the search minimised; None for the trainer's loss."""

    @property
    def setting(self) -> Setting:
        """What the policy knew."""

    @property
    def given(self) -> Sources:
        """The rows as they were given."""

    @property
    def sources(self) -> Sources:
        """With the validation rows that chose: without those held out."""

    @property
    def judges(self) -> Rows | None:
        """Rows that only score: test rows, or validation rows that were held out."""

    @property
    def role(self) -> Role:
        """What the judges are."""

    @property
    def metric(self) -> Metric:
        """It scores labels in their own units."""

    @property
    def scale(self) -> LabelScale:
        """What brings labels and predictions back to these units."""

    @property
    def batch_size(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def reference(self) -> str:
        """Which references were asked for: uniform, all, none."""

    @property
    def attribution(self) -> str | None:
        """How sources are to be valued: loo, shapley."""

    @property
    def nested(self) -> bool:
        """Whether fits on parts of the validation rows were asked for."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was known before it ran."""

    @property
    def bounded(self) -> bool:
        """Whether weights were bounded."""

    @property
    def ends_early(self) -> bool:
        """Whether the search may end before its budget does."""

    def trainer_for(self, sources: Sources) -> Any:
        """A trainer of the same model on these sources, which computes as the fit's own does."""

    def again(self, sources: Sources, *, budget: int) -> Fitted:
        """The same fit on other rows, not run yet; nothing is held out."""
