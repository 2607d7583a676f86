"""What a user can choose: every option is declared once, and checked here for every door.

``mixtree.fit``, the command line's flags and its page, files of options and the estimators' parameters are
made from the fields of ``FitOptions`` and from ``RUNNING``. A new option is one more field here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf, isfinite
from numbers import Integral, Real
from pathlib import Path as FilePath
from typing import Any, Literal

from mixtree.errors import InputError

TREE, BOX, FIXED, AUTO = "tree", "box", "fixed", "auto"
"""Kinds of policies: tree searches; those of them whose cells are boxes; fixed mixtures; ``auto``."""

SEGMENTS = 20
_KINDS = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: what it is, what happens without it, and who knows it."""

    name: str = ""
    kind: Any
    """``str``, ``int``, ``float`` or ``bool``; ``Mapping`` of numbers by source; ``object`` for anything."""
    help: str
    without: str = ""
    """What happens without it, in words."""
    default: Any = None
    choices: tuple[str, ...] = ()
    """All that a text may be; the words that may stand in a number's place."""
    least: float = -inf
    above: float = -inf
    below: float = inf
    """A number's range; one that has any range is finite."""
    known_to: tuple[str, ...] = ()
    """The kinds of policies that know it; none named: all of them."""
    binding: bool = False
    """Somebody has to keep to it: a comparison without such an algorithm is refused."""
    flag: str = ""
    """Its flag on the command line, where it is not its name."""
    metavar: str | None = None
    text: Any = str
    """What a text on the command line becomes, where ``kind`` does not say it."""

    def check(self, value: Any) -> None:
        """An error for what this option cannot be; None where it is the default, and so left open."""
        if value is None and self.default is None or self.kind is object:
            return
        text = isinstance(value, str)
        if self.choices and (self.kind is str or text):
            if text and value in self.choices:
                return
            if self.kind is str:
                raise InputError(f"{self.said} is one of {', '.join(self.choices)}; got {value!r}")
        wanted = {int: Integral, float: Real}.get(self.kind, self.kind)
        fits = isinstance(value, wanted) and (self.kind is bool or not isinstance(value, bool))
        if fits and self.kind in (int, float):
            ranged = (self.least, self.above, self.below) != (-inf, -inf, inf)
            fits = self.least <= value < self.below and value > self.above or not ranged
            fits = fits and (not ranged or self.kind is int or isfinite(value))
        if not fits:
            raise InputError(f"{self.said} must be {self.words}; got {value!r}")

    @property
    def said(self) -> str:
        """Its name in errors, with its flag where that is another word."""
        return f"{self.name} ({self.flag})" if self.flag else self.name

    @property
    def words(self) -> str:
        """What it has to be."""
        if self.kind is Mapping:
            return "numbers by the names of sources"
        limits = [f"of at least {self.least:g}"] if isfinite(self.least) else []
        limits += [f"above {self.above:g}"] if isfinite(self.above) else []
        limits += [f"below {self.below:g}"] if isfinite(self.below) else []
        kind = _KINDS[self.kind]
        if limits and self.kind is float:
            kind = "a finite number"
        words = f"{kind} {' and '.join(limits)}".rstrip()
        return words + "".join(f", or {each!r}" for each in self.choices)

    def given(self, value: Any) -> bool:
        """Whether a user has asked for something here, other than what happens anyway."""
        usual = type(value) is type(self.default) and value == self.default
        return value is not None and not usual


def _option(default: Any, kind: Any, help: str, without: str = "", **more: Any) -> Any:
    own = Option(kind=kind, help=help, without=without, default=default, **more)
    if default == {}:
        return field(default_factory=dict, metadata={"option": own})
    return field(default=default, metadata={"option": own})


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FitOptions:
    """What a user can choose; None is chosen from the data by ``choose``."""

    model: Any = _option(
        None,
        object,
        "auto (several families, joined), mlp, linear, lightgbm, xgboost or sklearn:NAME.",
        "auto for tables; mlp for arrays, or where something is asked that auto does not know",
        metavar="MODEL",
    )
    effort: Literal["quick", "normal", "thorough"] = _option(
        "normal",
        str,
        "Of model auto: quick, normal or thorough.",
        "normal",
        choices=("quick", "normal", "thorough"),
    )
    policy: Any = _option(
        None, object, "The algorithm.", "auto; a tree search if one of its options is given", metavar="P"
    )
    """An id; a Search; or a function that makes one of a ``Setting``. None: ``auto``, or a tree search if an
    option is given that only it knows."""
    metric: Any = _option(
        None,
        object,
        "auroc, f1, accuracy, log-loss, mae, rmse …; a sum as 0.5*auroc+0.5*accuracy; worst:COLUMN.",
        "auroc, or rmse for a regression",
        metavar="M",
    )
    objective: Literal["loss", "metric"] = _option(
        "loss", str, "What the search minimises: loss or metric.", "loss", choices=("loss", "metric")
    )
    budget: int | None = _option(
        None,
        int,
        "SGD steps in all.",
        "ten passes over the rows, 600 to 20,000; 100 trees",
        least=1,
        metavar="STEPS",
    )
    steps: int | None = _option(None, int, "SGD steps per node.", "budget / 30", least=1, metavar="PER_NODE")
    unit: Literal["steps", "samples"] = _option(
        "steps",
        str,
        "What --budget and --steps count: steps or samples.",
        "steps",
        choices=("steps", "samples"),
    )
    schedule: Literal["constant", "linear", "sqrt", "geometric", "theory"] = _option(
        "constant",
        str,
        "Steps of a node at height h, from n = --steps at the root: constant n, linear n(h+1), sqrt n√(h+1), "
        "geometric n·ρ^−h, or what the theory asks for (model linear; nearly always more than any budget).",
        "constant",
        choices=("constant", "linear", "sqrt", "geometric", "theory"),
        known_to=(TREE,),
    )
    untrained_root: bool = _option(
        False, bool, "The root is the initial model: its children start from that.", known_to=(TREE,)
    )
    batch_size: int | None = _option(None, int, "Rows per step.", "50", least=1, metavar="B")
    lr: float | None = _option(
        None, float, "Step size.", "the model's own (mlp, linear: 0.1)", above=0, metavar="η"
    )
    reset_optimizer: bool = _option(
        False,
        bool,
        "Every node starts with a new optimizer, as the authors' do; its parent's weights stay.",
    )
    nu: float | Literal["auto"] | None = _option(
        None, float, "Optimism ν, a number or auto.", "0.5", choices=("auto",), least=0, known_to=(TREE,),
        metavar="N",
    )  # fmt: skip
    rho: float | None = _option(
        None,
        float,
        "Decay ρ of optimism per height.",
        "by the number of sources",
        above=0,
        below=1,
        known_to=(TREE,),
        metavar="R",
    )
    optimism: float | None = _option(
        None, float, "Factor c of optimism.", "2", least=0, known_to=(TREE,), metavar="C"
    )
    returns: Literal["deepest", "best"] | None = _option(
        None,
        str,
        "Return rule: deepest or best.",
        "deepest",
        choices=("deepest", "best"),
        known_to=(TREE,),
        flag="--return",
    )
    width: int | None = _option(
        None, int, "Leaves that are expanded in one round.", "1", least=1, known_to=(TREE,), metavar="W"
    )
    minimum: Mapping[str, float] = _option(
        {},
        Mapping,
        "Least weight of a source; repeat it.",
        "0",
        known_to=(TREE,),
        binding=True,
        flag="--min",
        metavar="SRC=W",
    )
    maximum: Mapping[str, float] = _option(
        {},
        Mapping,
        "Greatest weight of a source (mixmatch-ch only); repeat it.",
        "1",
        known_to=(BOX,),
        binding=True,
        flag="--max",
        metavar="SRC=W",
    )
    max_passes: float | None = _option(
        None,
        float,
        "Most passes over a source's rows that a model may make; of the tree searches, mixmatch-ch alone.",
        "no limit",
        above=0,
        known_to=(BOX, AUTO, FIXED),
        binding=True,
        metavar="P",
    )
    """A cap on the weights of small sources. Where the caps of all sources together are too small for the
    budget, the rest of it is not spent."""
    stop_early: bool = _option(
        False,
        bool,
        "End the search once what it can still gain is below the noise.",
        known_to=(TREE,),
        binding=True,
    )
    use_target_rows: Literal["never", "auto"] | None = _option(
        None,
        str,
        "May the target's rows be trained on: never or auto.",
        "auto for policy auto, else never",
        choices=("never", "auto"),
        known_to=(AUTO,),
    )
    class_weight: Any = _option(
        None, object, "balanced: rare classes weigh more.", "all rows alike", metavar="balanced"
    )
    """``balanced``, or factors by class."""
    init: Mapping[str, Any] | str | FilePath | None = _option(
        None, object, "Start from the model in this folder.", "a fresh model", metavar="DIR", text=FilePath
    )
    """A model folder, a safetensors file, or arrays of a model. Labels of a regression are scaled as the
    folder's model has them; for a file and for arrays they are taken as they are."""
    segments: int = _option(
        SEGMENTS,
        int,
        "Parts of a long stage, of at least 50 steps each: stored one by one.",
        "20",
        least=1,
        metavar="N",
    )
    """They change no weights."""
    seed: int = _option(0, int, "Seed of everything random.", "0", least=0, metavar="S")
    holdout: float | None = _option(
        None,
        float,
        "Share of the validation rows that only score the model; 0 for none.",
        "a quarter of 150 rows or more, else none; none with test rows",
        metavar="F",
    )
    nested: bool = _option(
        False, bool, "Score by whole fits on parts of the validation rows; several times the cost."
    )
    reference: Literal["uniform", "all", "none"] = _option(
        "uniform",
        str,
        "What to compare with, trained outside the budget: uniform, all or none.",
        "uniform",
        choices=("uniform", "all", "none"),
    )
    attribution: Literal["loo", "shapley"] | None = _option(
        None,
        str,
        "What each source is worth: loo (without each) or shapley; trained outside the budget.",
        "none",
        choices=("loo", "shapley"),
    )

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if type(value).__module__ == "numpy" and not getattr(value, "shape", None):
                value = value.item() if callable(getattr(value, "item", None)) else value  # a grid's number
                object.__setattr__(self, name, value)
            if value is None and option.default == {}:
                object.__setattr__(self, name, {})
            else:
                option.check(value)

    def given(self, *names: str) -> list[str]:
        """Those of these options (all, unless named) that a user has asked for."""
        return [name for name in names or OPTIONS if OPTIONS[name].given(getattr(self, name))]


OPTIONS = {each.name: replace(each.metadata["option"], name=each.name) for each in fields(FitOptions)}
"""All options of a fit, by name."""

PORTFOLIO = ("model", "effort", "metric", "seed", "holdout", "reference")
"""Options that model auto knows."""

RUNNING = {
    each.name: each
    for each in (
        Option(
            name="workers",
            kind=object,
            help="Processes that train, or a Ray cluster: ray, ray:HOST:PORT, ray://HOST:PORT.",
            without="1",
            default=1,
            metavar="N|ray…",
        ),
        Option(
            name="time_limit",
            kind=object,
            help="Stop after this long: 90s, 10m, 2h; references fit in or are left out.",
            without="none",
            metavar="T",
        ),
        Option(
            name="storage",
            kind=object,
            help="Study file or database URL.",
            without="study.db inside --out",
            metavar="URL",
        ),
        Option(
            name="checkpoints",
            kind=object,
            help="Folder or URL (s3://…) for the models of studies, where all machines see it.",
            without="beside the study's file; inside --out for a database",
            metavar="URL",
        ),
        Option(
            name="study", kind=object, help="Name of the study.", without="fit", default="fit", metavar="NAME"
        ),
    )
}
"""How a fit is run: what does not change what comes of it."""

TREE_ONLY = tuple(name for name, each in OPTIONS.items() if each.known_to and {*each.known_to} <= {TREE, BOX})
"""Options that only tree searches know."""


def make_options(**options: Any) -> FitOptions:
    """FitOptions from keywords, with an error for people where one is unknown."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}; the options are {', '.join(OPTIONS)}")
    return FitOptions(**options)
