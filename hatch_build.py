"""Compiles the kernel of the built-in MLP into the package when it is installed or built.

Without a C compiler, or where compiling fails, the package is built without it and uses numpy instead.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCE = "src/mixtree/trainers/_mlp.c"
SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
# No -ffast-math: NaN and infinity must propagate. No -march=native: wheels run on other machines.
FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
FLAGS += ["-fvisibility=hidden", "-fPIC", "-shared"]


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the compiled library beside its source, and the platform into the wheel's name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = compile_kernel(Path(self.root), say=self.app.display_warning)
        if library is not None:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform()}"
            build_data["artifacts"].append(library.relative_to(self.root).as_posix())


def compile_kernel(root: Path, *, say: Any) -> Path | None:
    """The library, compiled from its source under this root; None, with a word on why, if it cannot be."""
    source = root / SOURCE
    library = source.with_suffix(SUFFIX)
    if sys.platform == "win32":  # its compiler does not know the vectors that the kernel is written with
        say("mixtree is built without its compiled kernel on Windows: the built-in MLP uses numpy")
        return None
    problem = "no C compiler was found"
    for compiler in _compilers():
        with TemporaryDirectory() as folder:
            made = Path(folder) / library.name
            command = [*compiler, *FLAGS, str(source), "-o", str(made), "-lm"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                # Changed in one move: a process that has the old library loaded keeps it.
                fresh = library.with_suffix(".new")
                fresh.write_bytes(made.read_bytes())
                return fresh.replace(library)
            problem = f"{shlex.join(command)} failed:\n{result.stderr.strip()}"
    library.unlink(missing_ok=True)  # an old one would not match its source
    say(f"mixtree is built without its compiled kernel: the built-in MLP uses numpy. {problem}")
    return None


def _compilers() -> list[list[str]]:
    """The compiler Python was built with, then the usual names; only those that exist."""
    named = sysconfig.get_config_var("CC") or ""
    candidates = [shlex.split(named), ["cc"], ["gcc"], ["clang"]]
    return [command for command in candidates if command and which(command[0])]


def _platform() -> str:
    """The platform's plain name: whether a wheel also fits the manylinux rules is for auditwheel to say."""
    return next(
        tag.platform for tag in sys_tags() if "manylinux" not in tag.platform and "musl" not in tag.platform
    )
