"""The outcome of sixty small studies, to the last bit: what a change of the code must leave as it is.

    python benchmarks/outcomes.py --record outcomes.json      # before a change
    python benchmarks/outcomes.py --compare outcomes.json     # after it; exit code 1 if anything differs

The studies are a pairwise cover of doors × policies × models × storages × workers × tasks × objectives. Of
each the hash of the model, the tree, the steps spent by phase and the verdict are recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from forty_fits import FEATURES, Fit, Table, table, write_tables

FACTORS: dict[str, tuple[Any, ...]] = {
    "door": ("command", "fit", "estimator"),
    "policy": (
        "auto", "mixmatch-bisect", "mixmatch-ch+commit", "mixmatch-dp", "mixmatch-chp+commit", "uniform",
        "pooled+decay", "only:ct", "validation", "fine-tune", "mmd", "importance", "online",
        "successive-halving", "group-dro", "regmix", "optuna-tpe",
    ),
    "model": ("mlp", "linear", "lightgbm", "sklearn:SGD", "torch"),
    "storage": ("memory", "file"),
    "workers": (1, 2),
    "task": ("two classes", "three classes", "regression"),
    "objective": ("loss", "metric"),
    "validation": (40, 160),
}  # fmt: skip
STUDIES = 60


def possible(case: Mapping[str, Any]) -> bool:
    """Whether the doors, models and policies of a case go together."""
    if case["door"] == "command" and (case["storage"] == "memory" or case["model"] == "torch"):
        return False
    if case["workers"] == 2 and case["model"] in ("torch", "lightgbm"):
        return False  # slow, and the same way as the others
    if case["door"] == "estimator" and case["model"] == "torch":
        return False
    sgd = ("mlp", "linear")
    if (
        case["policy"] in ("importance", "online", "group-dro", "regmix", "fine-tune")
        and case["model"] not in sgd
    ):
        return False
    return not (case["policy"] == "regmix" and case["workers"] == 2)


def cover() -> list[dict[str, Any]]:
    """Cases in which every pair of two factors' levels that can stand together does, greedily."""
    names = list(FACTORS)
    everything = [dict(zip(names, levels, strict=True)) for levels in product(*FACTORS.values())]
    everything = [case for case in everything if possible(case)]
    rng = np.random.default_rng(7)
    order = rng.permutation(len(everything))
    pool = [everything[place] for place in order[:6000]]

    def pairs(case: Mapping[str, Any]) -> set[tuple[str, Any, str, Any]]:
        return {(one, case[one], two, case[two]) for one, two in combinations(names, 2)}

    covers = [pairs(case) for case in pool]
    wanted = set().union(*covers)
    chosen: list[dict[str, Any]] = []
    while len(chosen) < STUDIES:
        best = max(range(len(pool)), key=lambda place: len(covers[place] & wanted))
        wanted -= covers[best]
        chosen.append(pool.pop(best))
        covers.pop(best)
    print(f"{len(chosen)} studies; {len(wanted)} pairs are not covered", file=sys.stderr)
    return chosen


def outcome(case: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What came of one study."""
    classes = {"two classes": 2, "three classes": 3, "regression": 0}[case["task"]]
    fit = Fit(what="", classes=classes, validation=case["validation"], rows=120)
    data = table(fit, seed)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"command": by_command, "fit": by_fit, "estimator": by_estimator}[case["door"]](
            case, data, classes, Path(name)
        )


def _model(case: Mapping[str, Any], classes: int) -> Any:
    if case["model"] == "torch":
        return lambda: _torch(classes or 1)
    if case["model"] == "sklearn:SGD":
        return "sklearn:SGDClassifier" if classes else "sklearn:SGDRegressor"
    return case["model"]


def _torch(outputs: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, outputs))


def _options(case: Mapping[str, Any], classes: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "policy": case["policy"],
        "objective": case["objective"],
        "workers": case["workers"],
        "budget": 24 if case["model"] in ("lightgbm", "torch") else 180,
    }
    if case["policy"].startswith("mixmatch"):
        options["steps"] = max(2, options["budget"] // 12)
    if case["model"] == "sklearn:SGD" and classes:
        options["metric"] = "accuracy"
    return options


def _told(
    tree: Any, spent: Mapping[str, int], verdict: Mapping[str, Any] | None, digest: str
) -> dict[str, Any]:
    nodes = [
        [
            list(path),
            [float(each).hex() for each in node.mixture],
            node.steps,
            float(node.value).hex(),
            node.phase,
        ]
        for path, node in tree.items()
    ]
    return {"model": digest, "tree": nodes, "spent": dict(spent), "verdict": verdict}


def _digest(arrays: Mapping[str, Any]) -> str:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def by_command(case: Mapping[str, Any], data: Table, classes: int, folder: Path) -> dict[str, Any]:
    from mixtree import cli, load

    write_tables(data, folder, classes=classes)
    args = ["fit", "train.csv", "--source-col", "state", "--label", "label", "--val", "val.csv"]
    args += ["--model", str(_model(case, classes)), "--out", "model"]
    for name, value in _options(case, classes).items():
        args += [f"--{name}", str(value)]
    out, argv = io.StringIO(), sys.argv
    sys.argv = ["mixtree", *args]
    with _inside(folder):
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                cli.main()
        except SystemExit as stopped:
            if stopped.code:
                return {"error": out.getvalue().strip()}
        finally:
            sys.argv = argv
        result = load("model/study.db", "fit")
        verdict = json.loads(Path("model/verdict.json").read_text())
    return _told(result.tree, result.spent, verdict, _digest(result.state))


def by_fit(case: Mapping[str, Any], data: Table, classes: int, folder: Path) -> dict[str, Any]:
    from mixtree import fit
    from mixtree.errors import MixtreeError

    storage = folder / "study.db" if case["storage"] == "file" else None
    try:
        result = fit(
            data.sources,
            data.validation,
            model=_model(case, classes),
            storage=storage,
            **_options(case, classes),
        )
    except MixtreeError as error:
        return {"error": str(error)}
    digest = _digest({"predictions": result.predict(data.validation[0])})
    return _told(result.tree, result.spent, result.verdict.as_dict(), digest)


def by_estimator(case: Mapping[str, Any], data: Table, classes: int, folder: Path) -> dict[str, Any]:
    from mixtree import MixtureClassifier, MixtureRegressor
    from mixtree.errors import MixtreeError

    kind = MixtureClassifier if classes else MixtureRegressor
    storage = str(folder / "study.db") if case["storage"] == "file" else None
    model = kind(_model(case, classes), storage=storage, **_options(case, classes))
    try:
        model.fit(data.sources, X_val=data.validation[0], y_val=data.validation[1])
    except MixtreeError as error:
        return {"error": str(error)}
    predict = getattr(model, "predict_proba", model.predict) if classes else model.predict
    digest = _digest({"predictions": predict(data.validation[0])})
    return _told(model.tree_, model.spent_, model.verdict_.as_dict(), digest)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--only", type=int, nargs="*")
    args = parser.parse_args()
    before = json.loads(args.compare.read_text()) if args.compare else []
    found, differing = [], 0
    for place, case in enumerate(cover()):
        if args.only and place not in args.only:
            continue
        began = time.monotonic()
        now = json.loads(json.dumps({"case": case, **outcome(case, place)}))
        found.append(now)
        told = " ".join(str(level) for level in case.values())
        if before:
            then = before[place]
            changed = [name for name in sorted(then | now) if then.get(name) != now.get(name)]
            differing += bool(changed)
            print(f"{place:2} {'; '.join(changed) or 'same'}: {told}")
            for name in changed:
                print(f"     {name}: {str(then.get(name))[:300]}\n     now: {str(now.get(name))[:300]}")
        else:
            print(
                f"{place:2} {time.monotonic() - began:5.1f} s {now.get('error', 'ok')[:200]}: {told}",
                flush=True,
            )
    if args.record:
        args.record.write_text(json.dumps(found))
    print(f"{differing} of {len(found)} differ" if before else f"{len(found)} recorded")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
