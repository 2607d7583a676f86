import io
import subprocess
import sys
import warnings

import pytest

from mixtree import cli
from mixtree.errors import InputError, TrainingError


def test_version():
    out = subprocess.run(
        [sys.executable, "-m", "mixtree", "--version"], capture_output=True, text=True, check=True
    )
    assert out.stdout.startswith("mixtree ")


def test_help_does_not_load_heavy_packages():
    code = (
        "import sys, mixtree.cli;"
        "print([name for name in ('numpy', 'torch', 'sklearn', 'matplotlib') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(("error", "code"), [(InputError("bad file"), 2), (TrainingError("diverged"), 1)])
def test_errors_become_one_line_and_an_exit_code(monkeypatch, capsys, error, code):
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == code
    assert capsys.readouterr().err.strip() == f"mixtree: {error}"


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
@pytest.mark.parametrize("args", [["fit", "--help"], ["plan", "--sources", "3", "--budget", "300"]])
def test_an_output_of_any_encoding_takes_every_sign(monkeypatch, encoding, args):
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding=encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(sys, "argv", ["mixtree", *args])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
        raise SystemExit(0)
    assert not stopped.value.code
    streams["stdout"].flush()
    shown = streams["stdout"].buffer.getvalue().decode(encoding)
    assert "\\u" in shown or encoding == "utf-8"


def test_what_ends_a_command_and_what_it_warns_of_steer_no_terminal(monkeypatch, capsys):
    def fail() -> None:
        warnings.warn("odd \x1b[2J", stacklevel=1)
        raise OSError("no \x1b[2J \u202e \udcff here")

    monkeypatch.setattr(cli, "app", fail)
    with warnings.catch_warnings(), pytest.raises(SystemExit):
        warnings.simplefilter("always")
        cli.main()
    assert capsys.readouterr().err == ("warning: odd \\x1b[2J\nmixtree: no \\x1b[2J \\u202e \\xff here\n")


def test_too_little_memory_is_said_in_one_line(monkeypatch, capsys):
    def fail() -> None:
        raise MemoryError("8 TB")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    assert capsys.readouterr().err.startswith("mixtree: out of memory (8 TB): use fewer rows")
