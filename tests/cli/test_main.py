import subprocess
import sys

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
