"""Find the mixture of training sources, and the model, that do best on a target unlike any of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixtree.data.sources import Problem as Problem
    from mixtree.data.sources import Rows as Rows
    from mixtree.data.sources import Sources as Sources
    from mixtree.engine.study import Result as Result
    from mixtree.engine.study import run as run
    from mixtree.errors import DataError as DataError
    from mixtree.errors import InputError as InputError
    from mixtree.errors import MixtreeError as MixtreeError
    from mixtree.errors import SearchError as SearchError
    from mixtree.errors import TrainingError as TrainingError
    from mixtree.fitting.estimators import MixtureClassifier as MixtureClassifier
    from mixtree.fitting.estimators import MixtureRegressor as MixtureRegressor
    from mixtree.fitting.model_folder import load_model as load_model
    from mixtree.fitting.pipeline import fit as fit
    from mixtree.fitting.pipeline import load as load
    from mixtree.policies.commit import then_commit as then_commit
    from mixtree.policies.registry import make_search as make_search
    from mixtree.policies.registry import training_sources as training_sources
    from mixtree.policies.setting import Setting as Setting
    from mixtree.search import Search as Search
    from mixtree.search import SearchBase as SearchBase
    from mixtree.simplex import Cell as Cell
    from mixtree.simplex import Mixture as Mixture
    from mixtree.trainer import Evaluation as Evaluation
    from mixtree.trainer import Job as Job
    from mixtree.trainer import Trainer as Trainer
    from mixtree.trainer import TrainerBase as TrainerBase
    from mixtree.tree import Node as Node
    from mixtree.tree import Tree as Tree
    from mixtree.tree import Trial as Trial
    from mixtree.tree_search import TreeSearch as TreeSearch

# Names are imported when they are first used: the command line answers at once, and nobody waits for numpy.
_PUBLIC = {
    "Cell": "mixtree.simplex",
    "DataError": "mixtree.errors",
    "Evaluation": "mixtree.trainer",
    "InputError": "mixtree.errors",
    "Job": "mixtree.trainer",
    "MixtreeError": "mixtree.errors",
    "MixtureClassifier": "mixtree.fitting.estimators",
    "MixtureRegressor": "mixtree.fitting.estimators",
    "Mixture": "mixtree.simplex",
    "Node": "mixtree.tree",
    "Problem": "mixtree.data.sources",
    "Result": "mixtree.engine.study",
    "Rows": "mixtree.data.sources",
    "Search": "mixtree.search",
    "SearchBase": "mixtree.search",
    "SearchError": "mixtree.errors",
    "Setting": "mixtree.policies.setting",
    "Sources": "mixtree.data.sources",
    "Trainer": "mixtree.trainer",
    "TrainerBase": "mixtree.trainer",
    "TrainingError": "mixtree.errors",
    "Tree": "mixtree.tree",
    "TreeSearch": "mixtree.tree_search",
    "Trial": "mixtree.search",
    "fit": "mixtree.fitting.pipeline",
    "load": "mixtree.fitting.pipeline",
    "load_model": "mixtree.fitting.model_folder",
    "make_search": "mixtree.policies.registry",
    "run": "mixtree.engine.study",
    "then_commit": "mixtree.policies.commit",
    "training_sources": "mixtree.policies.registry",
}

__all__ = [*sorted(_PUBLIC), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("mixtree")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mixtree' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
