"""Compiles the package's two C files when it is installed or built.

``_mlp`` is the kernel of the built-in MLP, ``_arithmetic`` a Python module of what studies and verdicts ask
most often. Without a C compiler (or, for the module, without Python's headers), or where compiling fails, the
package is built without them: numpy and Python compute the same.
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

KERNEL = "src/mixtree/_native/_mlp.c"
MODULE = "src/mixtree/_native/_arithmetic.c"
SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
# No -ffast-math: NaN and infinity must propagate. No -march=native: wheels run on other machines.
SHARED = ["-std=gnu11", "-fvisibility=hidden", "-fPIC", "-shared"]
KERNEL_FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
# The module gives the bits that Python gives: nothing is contracted.
MODULE_FLAGS = ["-O2", "-ffp-contract=off", "-I", sysconfig.get_paths()["include"]]
if sys.platform == "darwin":
    MODULE_FLAGS += ["-undefined", "dynamic_lookup"]


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the compiled libraries beside their sources, and the platform into the wheel's name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        libraries = compile_all(Path(self.root), say=self.app.display_warning)
        if libraries:
            # The module is written for the stable interface: one library for every Python from 3.11 on.
            python = "cp311-abi3" if any("abi3" in each.name for each in libraries) else "py3-none"
            build_data["pure_python"] = False
            build_data["tag"] = f"{python}-{_platform()}"
            build_data["artifacts"] += [each.relative_to(self.root).as_posix() for each in libraries]


def compile_all(root: Path, *, say: Any) -> list[Path]:
    """The libraries that could be compiled from their sources under this root, with a word on the others."""
    if sys.platform == "win32":  # its compiler does not know the vectors that the kernel is written with
        say("mixtree is built without its compiled parts on Windows: numpy and Python are used")
        return []
    made = [
        _compiled(root / KERNEL, SUFFIX, KERNEL_FLAGS, say=say, instead="the built-in MLP uses numpy"),
        _compiled(root / MODULE, ".abi3.so", MODULE_FLAGS, say=say, instead="numpy does its work"),
    ]
    return [library for library in made if library is not None]


def _compiled(source: Path, suffix: str, flags: list[str], *, say: Any, instead: str) -> Path | None:
    library = source.with_suffix(suffix)
    problem = "no C compiler was found"
    for compiler in _compilers():
        with TemporaryDirectory() as folder:
            made = Path(folder) / library.name
            command = [*compiler, *SHARED, *flags, str(source), "-o", str(made), "-lm"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                # Changed in one move: a process that has the old library loaded keeps it.
                fresh = library.with_suffix(".new")
                fresh.write_bytes(made.read_bytes())
                return fresh.replace(library)
            problem = f"{shlex.join(command)} failed:\n{result.stderr.strip()}"
    library.unlink(missing_ok=True)  # an old one would not match its source
    say(f"mixtree is built without {library.name}: {instead}. {problem}")
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
