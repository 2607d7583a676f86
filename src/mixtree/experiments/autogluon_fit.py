"""AutoGluon on a folder of files: run by the Python of its own environment, which has no mixtree.

    python autogluon_fit.py FOLDER

FOLDER holds train.parquet (the column ``label``), test.parquet and task.json; predictions.parquet is written.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path


def main(folder: Path) -> None:
    pandas, tabular = import_module("pandas"), import_module("autogluon.tabular")
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    train, test = (pandas.read_parquet(folder / f"{part}.parquet") for part in ("train", "test"))
    predictor = tabular.TabularPredictor(
        "label",
        problem_type=task["task"],
        eval_metric=task["metric"],
        path=str(folder / "models"),
        verbosity=0,
    ).fit(train, time_limit=task["seconds"], num_cpus=1)
    if task["task"] == "regression":
        found = predictor.predict(test).to_frame("value")
    else:
        found = predictor.predict_proba(test)
        found = found[sorted(found.columns)]
    found.columns = [str(name) for name in found.columns]
    found.to_parquet(folder / "predictions.parquet", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
