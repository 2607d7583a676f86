"""New rows of the target for a finished portfolio."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from mixtree.cli import app
from mixtree.errors import InputError
from mixtree.fitting.model_folder import load_model


def part(count, seed, sign, shift=0.0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(count, 3)), columns=["a", "b", "c"])
    frame["bought"] = (sign * frame.a + shift + 0.5 * rng.normal(size=count) > 0).astype(int)
    return frame


def run(*words):
    told = CliRunner().invoke(app, [str(each) for each in words], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.stdout


@pytest.fixture
def folder(tmp_path):
    sources = pd.concat([part(150, 0, 1.0).assign(state="x"), part(150, 1, 1.0).assign(state="y")])
    sources.to_csv(tmp_path / "s.csv", index=False)
    part(30, 2, 0.3).to_csv(tmp_path / "v.csv", index=False)
    flags = ("--source-col", "state", "--label", "bought", "--val", tmp_path / "v.csv", "--effort", "quick")
    run("fit", tmp_path / "s.csv", *flags, "--out", tmp_path / "m")
    return tmp_path


def longer(folder, more, name="w.csv"):
    """The rows of then among the new ones, in another order."""
    both = pd.concat([more, pd.read_csv(folder / "v.csv")]).sample(frac=1.0, random_state=0)
    both.to_csv(folder / name, index=False)
    return folder / name


def test_members_are_joined_again_where_that_is_better(folder):
    before = json.loads((folder / "m" / "model.json").read_text())
    more = part(300, 3, -1.0)  # the target was not what thirty rows said
    told = json.loads(run("update", folder / "m", "--val", longer(folder, more), "--json"))
    after = json.loads((folder / "m" / "model.json").read_text())
    assert told["new_rows"] == 300 and not told["kept"] and told["gain"]["value"] > 0
    assert {each["name"] for each in after["members"]} <= {each["name"] for each in before["members"]}
    assert after["members"] == told["members"] and after["verdict"] == told["verdict"]
    assert after["rows"]["validation"] == 330 and after["data"] == before["data"]
    # The members are those of then: only their weights are others.
    new = part(50, 4, -1.0)
    assert np.isfinite(load_model(folder / "m").scores(new)).all()
    assert "warning: the model" not in run("show", folder / "m")
    even = longer(folder, pd.concat([more, part(40, 5, -1.0)]), "u.csv")
    assert json.loads(run("update", folder / "m", "--val", even, "--json"))["new_rows"] == 40


def test_what_still_wins_is_kept_as_it_was(folder, monkeypatch):
    files = [folder / "m" / name for name in ("model.json", "weights.safetensors", "MODEL_CARD.md")]
    before = [each.read_bytes() for each in files]

    def worse(self, members):
        return np.full_like(members[0].predictions, 0.5)

    monkeypatch.setattr("mixtree.fitting.portfolio.PortfolioTrainer.crossed", worse)
    shown = run("update", folder / "m", "--val", longer(folder, part(100, 3, 0.3)))
    assert "on 100 new rows" in shown and "kept as it was" in shown
    assert before == [each.read_bytes() for each in files]


def test_rows_that_are_not_longer_are_refused(folder):
    with pytest.raises(InputError, match="0 new rows"):
        run("update", folder / "m", "--val", folder / "v.csv")
    part(60, 3, 1.0).to_csv(folder / "w.csv", index=False)
    with pytest.raises(InputError, match="30 of the 30 rows that validated the fit are not in the new table"):
        run("update", folder / "m", "--val", folder / "w.csv")


def test_the_model_of_a_policy_is_scored_again(folder):
    flags = ("--source-col", "state", "--label", "bought", "--val", folder / "v.csv", "--reference", "none")
    run("fit", folder / "s.csv", *flags, "--model", "linear", "--budget", "60", "--out", folder / "n")
    more = part(80, 3, 1.0)
    told = json.loads(run("update", folder / "n", "--val", longer(folder, more), "--json"))
    expected = roc_auc_score(more.bought, load_model(folder / "n").scores(more)[:, 1])
    assert told["new_rows"] == 80 and told["score"]["value"] == pytest.approx(expected)
    assert "kept: fit again" in run("update", folder / "n", "--val", folder / "w.csv")
