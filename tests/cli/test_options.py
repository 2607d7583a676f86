"""Options: flags, TOML keys, durations, pairs; and the page that documents them all."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mixtree.cli import app
from mixtree.cli.options import FIT as FLAGS
from mixtree.cli.options import pairs, seconds, weights, with_config
from mixtree.cli.reference import options_of, page
from mixtree.errors import InputError

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(app), (
        "python -m mixtree.cli.reference > docs/command-line.md"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name):
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(f"### `mixtree {name}")
    section = text[start : text.find("\n### ", start + 1)]
    assert COMMANDS[name].help
    for option in options_of(COMMANDS[name]):
        assert f"`{option}" in section


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_has_help_and_a_default(name, mixtree):
    for each in COMMANDS[name].params:
        assert each.help, f"{name} {each.name} has no help"
        said = isinstance(each.show_default, str) or each.default not in (None, (), [])
        assert each.required or said, f"{name} {each.name} does not say its default"
    answer = mixtree(name, "--help")
    assert answer.code == 0
    for option in options_of(COMMANDS[name]):
        assert option in answer.out


@pytest.mark.parametrize(
    ("text", "expected"), [(None, None), ("90", 90), ("90s", 90), ("1.5m", 90), (" 2 h", 7200), ("1d", 86400)]
)
def test_durations(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0s", "-5", "5 weeks", "h", "1e3", "inf"])
def test_durations_that_are_none(text):
    with pytest.raises(InputError, match="90s, 10m or 2h"):
        seconds(text)


@given(st.dictionaries(st.text(min_size=1), st.floats(0, 1), max_size=4))
def test_weights_come_back(mapping):
    assert weights([f"{name}={value!r}" for name, value in mapping.items()], "--min") == mapping


def test_a_source_file_may_hold_an_equals_sign():
    assert pairs(["fl=data=1.csv"], "--source") == {"fl": "data=1.csv"}
    assert pairs(["a=b=0.5"], "--min") == {"a=b": "0.5"}


@pytest.mark.parametrize("text", ["fl", "=x.csv", "fl="])
def test_pairs_that_are_none(text):
    with pytest.raises(InputError, match="NAME=FILE"):
        pairs([text], "--source")


def config(tmp_path: Path, text: str):
    file = tmp_path / "options.toml"
    file.write_text(text, encoding="utf-8")
    return with_config([file], {"seed": 4}, FLAGS)


def test_toml_keys_are_the_flags_names(tmp_path):
    text = 'tables = "a.csv"\nsource_col = "s"\nbatch-size = 5\nlr = 1\nreturn = "best"\nseed = 9\nnu = 0.5'
    tables, values = config(tmp_path, text)
    assert tables == [Path("a.csv")]
    assert values == {
        "source_col": "s", "batch_size": 5, "lr": 1.0, "returns": "best", "seed": 4, "nu": "0.5",
    }  # fmt: skip
    assert isinstance(values["lr"], float)
    budget = config(tmp_path, "budget = 1e4")[1]["budget"]
    assert (budget, type(budget)) == (10_000, int)


def test_toml_tables_may_be_lists_or_mappings(tmp_path):
    _, values = config(tmp_path, 'source = { fl = "fl.csv" }\nmin = ["fl=0.1"]\ndrop = "id"')
    assert values["source"] == ["fl=fl.csv"]
    assert values["minimum"] == ["fl=0.1"]
    assert values["drop"] == ["id"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budget = 1.5", "a whole number"),
        ("budget = '1e4'", "a whole number"),
        ("budget = inf", "a whole number"),
        ("budget = true", "a whole number"),
        ("lr = 'x'", "a number"),
        ("label = 3", "text"),
        ("json = 1", "true or false"),
        ("labels = 'x'", "unknown key"),
    ],
)
def test_toml_values_of_a_wrong_type(tmp_path, text, message):
    with pytest.raises(InputError, match=f"options.toml: .*{message}"):
        config(tmp_path, text)


def test_zero_is_not_forgotten(mixtree, tables, base):
    for flag in ("--budget", "--steps", "--batch-size"):
        answer = mixtree("fit", *base, flag, "0", "--dry-run")
        assert answer.code == 2, flag
        assert "at least 1; got 0" in answer.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label = " + "[" * 50_000 + "]" * 50_000, "too deep for options"),
        ("a." * 50_000 + "b = 1", "more than 32 parts"),
        ("""[ 'a' . "b" . """ + "c . " * 50_000 + "d]", "more than 32 parts"),
        ("#" * 2**20 + " ", "1,048,577 bytes are too many"),
        ("budget = " + "9" * 10_000, "is not valid TOML"),
    ],
    ids=["nested", "chained", "a chain with quotes", "large", "an endless number"],
)
def test_toml_that_no_parser_ends_with_is_refused_at_once(tmp_path, text, message):
    started = time.monotonic()
    with pytest.raises(InputError, match=f"options.toml:? .*{message}"):
        config(tmp_path, text)
    assert time.monotonic() - started < 2


def test_long_lists_and_long_words_are_no_chains(tmp_path):
    weights = ", ".join(f"s{n} = 0.{n}" for n in range(1, 500))
    _, values = config(tmp_path, f"min = {{ {weights} }}\nlabel = '{'a.b.' * 9}'\n# {'-' * 500_000}")
    assert len(values["minimum"]) == 499
