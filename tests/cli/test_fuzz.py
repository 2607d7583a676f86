"""Random tables and flags: every command ends with 0, 1 or 2 and says why, never with a traceback."""

from __future__ import annotations

import contextlib
import csv
import io
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CELLS = st.one_of(
    st.sampled_from(["", "NA", "nan", "inf", "-inf", "0", "1", "1e308", "9" * 30, "007", "true", "False"]),
    st.sampled_from(
        ["2024-01-31", "31/01/2024", "01/02/03", "2024-13-01", "12:30", "a", "b", "[/x]", "é", "'"]
    ),
    st.integers(-5, 5).map(str),
    st.floats(width=32).map(str),
    st.text(st.characters(codec="utf-8"), max_size=4),
)
NAMES = st.one_of(
    st.sampled_from(["y", "s", "x", "", "*", "^a.*$", "x ", "[bold]", "é", "=", "literal"]),
    st.text(st.characters(codec="utf-8"), max_size=3),
)
WEIGHTS = st.sampled_from(["a=0.5", "a=2", "a=-1", "a", "=1", "b=nan", "é=0.1"])
FLAGS = st.one_of(
    st.tuples(
        st.just("--metric"), st.sampled_from(["auroc", "accuracy", "rmse", "log-loss", "hand-till", "x"])
    ),
    st.tuples(st.just("--task"), st.sampled_from(["auto", "classification", "regression", "x"])),
    st.tuples(st.just("--model"), st.sampled_from(["linear", "mlp", "sklearn:GaussianNB", "x"])),
    st.tuples(st.just("--lr"), st.sampled_from(["0", "-1", "nan", "1e30", "0.1"])),
    st.tuples(st.just("--budget"), st.sampled_from(["-1", "0", "1", "2", "9"])),
    st.tuples(st.just("--steps"), st.sampled_from(["-1", "0", "1", "2", "9"])),
    st.tuples(st.just("--batch-size"), st.sampled_from(["0", "1", "7"])),
    st.tuples(
        st.just("--policy"), st.sampled_from(["pooled", "uniform+decay", "mixmatch-ch", "auto", "only:a"])
    ),
    st.tuples(st.sampled_from(["--min", "--max"]), WEIGHTS),
    st.tuples(
        st.sampled_from(["--nu", "--rho", "--optimism"]), st.sampled_from(["auto", "0", "0.5", "-1", "nan"])
    ),
    st.tuples(st.just("--seed"), st.sampled_from(["-1", "0", str(2**70)])),
    st.tuples(st.just("--class-weight"), st.sampled_from(["balanced", "x"])),
    st.tuples(st.just("--drop"), NAMES),
    st.tuples(st.just("--unit"), st.sampled_from(["samples", "x"])),
    st.tuples(st.just("--objective"), st.sampled_from(["metric", "loss"])),
)


MOSTLY = st.sampled_from([True] * 14 + [False])
SOUND = {"s": ["a", "b"] * 4, "y": ["a", "a", "b", "b"] * 2}


@st.composite
def headers(draw: st.DrawFn) -> list[str]:
    """Names of columns: mostly different ones, with a label and a source among them."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4))
    if not draw(MOSTLY):
        return names
    return [
        *dict.fromkeys(name.strip() for name in names if name.strip() not in ("x", "y", "s", "")),
        "x",
        "y",
        "s",
    ]


@st.composite
def tables(draw: st.DrawFn, header: list[str]) -> bytes:
    """A table with these columns: mostly sound sources and labels, and anything else beside them."""
    columns = []
    for name in header:
        if name in SOUND and draw(MOSTLY):
            columns.append(SOUND[name])
        else:
            cells = st.sampled_from(draw(st.lists(CELLS, min_size=1, max_size=4)))
            columns.append(draw(st.lists(cells, min_size=8, max_size=8)))
    rows = list(zip(*columns, strict=True))[: 8 if draw(MOSTLY) else 1]
    out = io.StringIO()
    csv.writer(out).writerows([header, *rows])
    noise = b"" if draw(MOSTLY) else draw(st.binary(max_size=8))
    return out.getvalue().encode() + noise


@st.composite
def problems(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A training and a validation table, mostly with the same columns."""
    header = draw(headers())
    other = header if draw(MOSTLY) else draw(headers())
    return draw(tables(header)), draw(tables(other))


@given(problem=problems(), flags=st.lists(FLAGS, max_size=2))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_no_traceback(mixtree, problem, flags):
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("train.csv").write_bytes(problem[0])
        Path("val.csv").write_bytes(problem[1])
        args = [
            *("--model", "linear", "--budget", "3", "--steps", "1"),
            *(part for flag in flags for part in flag),
        ]
        answer = mixtree(
            "fit", "train.csv", "--source-col", "s", "--label", "y", "--val", "val.csv", *args, "--out", "out"
        )
        assert answer.code in (0, 1, 2)
        assert "Traceback" not in answer.err
        if answer.code:
            said = answer.err.strip().splitlines()[-1]
            assert said.startswith("mixtree: ") or answer.code == 2  # typer draws a box around wrong flags
            assert not Path("out/model.json").exists()
        else:
            assert mixtree("predict", "out", "val.csv", "-o", "p.csv").code == 0
            assert Path("p.csv").stat().st_size
