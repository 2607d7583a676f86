"""Any program as a trainer: a command that continues a checkpoint on a mixture and tells its score.

.. code-block:: python

    trainer = CommandTrainer(
        "python train.py --init {init} --out {out} --mixture {mixture} --steps {steps} --seed {seed} "
        "--lr-scale {lr_scale}",
        ["books", "code", "web"],
    )

**The template** is cut into arguments first and filled in after, without a shell: no value can break it.
Doubled braces stand for braces. It may name

========================  ==========================================================================
``{init}``                the checkpoint to continue; empty for a fresh model (see ``fresh_command``)
``{out}``                 where to write the new checkpoint: a file or a folder
``{mixture}``             the weights in the order of the sources, as ``0.2,0.3,0.5``
``{mixture_json}``        the same as ``{"books": 0.2, "code": 0.3, "web": 0.5}``
``{mixture_file}``        a file that holds ``{mixture_json}``
``{steps}``               how many steps to train
``{seed}``                the seed of this training: the same seed must give the same model
``{init_seed}``           the seed of the fresh model, the same for all models of a study
``{lr_scale}``            what to multiply the step size with
``{score}``               where to write the score; without it the last line of stdout is the score
``{folder}``              a scratch folder of this run alone
========================  ==========================================================================

A mixture has one more weight, named ``target``, when a search trains on the target's own rows.

**The score** is a JSON object: ``{"loss": 0.31}``, measured on the target's validation rows, smaller is
better. It may have ``"standard_error"`` and ``"predictions"``, the path of a ``.npy`` file with one row per
validation row: class probabilities (n, classes), or (n,). A loss that is not finite, null or ``"diverged"``,
or ``"diverged": true``, is a diverged model: the study goes on and needs no checkpoint of it.

**What goes wrong is loud**: an exit code other than 0, a time-out, no checkpoint or a score that is none
stops the study with the end of the program's stderr. The folder of a failed run is kept for a look. A command
without ``{seed}`` is warned of, and so is one without ``{lr_scale}`` when a step size is to be scaled.

**A program ends with its study**: past its time-out it is killed with all that it has started. If the
process that runs the study is killed, on Linux the program is killed too, but not what it has started itself;
on other systems it goes on, and is to be ended before the study is resumed.

**Checkpoints are kept as bytes**, in memory and wherever a study saves its models, so that a study can be
resumed and moved. Where they are too large for that, let the program keep its heavy files where it likes and
write a small file to ``{out}`` that says where.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from string import Formatter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.allocation import has_target, named
from mixtree.data.sources import TARGET
from mixtree.errors import InputError, TrainingError
from mixtree.trainer import Evaluation, Job, TrainerBase
from mixtree.trainers.command_process import run_program
from mixtree.trainers.rows import as_bytes, from_bytes

logger = logging.getLogger(__name__)

_MIXTURES = {"mixture", "mixture_json", "mixture_file"}
_NEEDED = {"out", "steps"}
_KNOWN = {"init", "seed", "init_seed", "lr_scale", "score", "folder"} | _NEEDED | _MIXTURES
_TAIL = 1 << 16  # bytes of a log that are looked at
_QUOTED = 20  # lines of stderr in an error message

Files = Mapping[str, NDArray[np.uint8]]


@dataclass(frozen=True, eq=False, slots=True)
class CommandState:
    """A checkpoint and its score. One file has the empty name; a folder's files have their relative paths."""

    init_seed: int
    files: Files = field(default_factory=dict)
    evaluation: Evaluation | None = None
    """None for a fresh model, which no program has seen yet."""

    @property
    def diverged(self) -> bool:
        """Its loss is not finite."""
        return self.evaluation is not None and not np.isfinite(self.evaluation.value)


class CommandTrainer(TrainerBase[CommandState]):
    """Trains by running a program; the template and the score are described at the top of this module.

    Parameters
    ----------
    command : str or sequence of str
        The template, as one line or as its arguments.
    sources : sequence of str
        The sources' names, in the order of a mixture's weights.
    fresh_command : str or sequence of str, optional
        The template where there is no checkpoint to continue, if it is another one.
    folder : path, optional
        Where the runs have their scratch folders; the system's temporary folder by default.
    keep : bool
        Leave the scratch folders there.
    suffix : str
        Ending of ``{init}`` and ``{out}``, for programs that look at it.
    timeout : float, optional
        Seconds that one run may take.
    retries : int
        How often a failed run is tried again.
    env : mapping of str, optional
        Environment variables that are added.
    cwd : path, optional
        Where the program runs; where this process does by default.

    Examples
    --------
    >>> trainer = CommandTrainer(
    ...     "train --init {init} --out {out} --mix {mixture} --steps {steps} --seed {seed}", ["books", "code"]
    ... )
    >>> trainer.names
    ('books', 'code')
    """

    def __init__(
        self,
        command: str | Sequence[str],
        sources: Sequence[str],
        *,
        fresh_command: str | Sequence[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        keep: bool = False,
        suffix: str = "",
        timeout: float | None = None,
        retries: int = 0,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self.names = tuple(sources)
        if not self.names or len({*self.names, TARGET}) != len(self.names) + 1:
            raise InputError(f"the sources need names that differ and are not {TARGET!r}; got {self.names}")
        if timeout is not None and not timeout > 0:
            raise InputError(f"the time-out must be above 0 seconds; got {timeout}")
        if retries < 0:
            raise InputError(f"retries must be at least 0; got {retries}")
        self.command = _template(command, "command", _NEEDED | {"init"})
        self.fresh_command = (
            self.command if fresh_command is None else _template(fresh_command, "fresh_command", _NEEDED)
        )
        if not all("seed" in _names(each) for each in (self.command, self.fresh_command)):
            logger.warning(
                "the %s does not name {seed}: the same seed must give the same model, and the program cannot "
                "know the seed else; add for example: --seed {seed}",
                "command" if "seed" not in _names(self.command) else "fresh_command",
            )
        self._warned = False
        self.folder = None if folder is None else Path(folder).absolute()
        self.keep, self.suffix, self.timeout, self.retries = keep, suffix, timeout, retries
        self.env, self.cwd = dict(env or {}), None if cwd is None else Path(cwd)

    def init(self, seed: int) -> CommandState:
        """A fresh model: nothing on disk, and no score."""
        return CommandState(seed)

    def train(self, jobs: Sequence[Job[CommandState]]) -> list[CommandState]:
        trained = []
        for job in jobs:
            if job.state.diverged:
                trained.append(job.state)
                continue
            for retries in reversed(range(self.retries + 1)):
                try:
                    trained.append(self._run(job))
                    break
                except TrainingError as error:
                    if not retries:
                        raise
                    logger.warning("%s\ntrying again", error)
        return trained

    def _run(self, job: Job[CommandState]) -> CommandState:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        run = _Run(Path(tempfile.mkdtemp(prefix="mixtree-", dir=self.folder)), self.suffix, self.cwd)
        fresh = not job.state.files
        template = self.fresh_command if fresh else self.command
        if job.lr_scale != 1 and not self._warned and "lr_scale" not in _names(template):
            self._warned = True
            logger.warning(
                "the command does not name {lr_scale}: the program trains with its whole step size although "
                "the study asks for %g times that, as in a commit phase; add for example: --lr-scale "
                "{lr_scale}",
                job.lr_scale,
            )
        names, weights = self.names, job.mixture
        if has_target(weights, len(names)) is None:
            raise InputError(f"the mixture has {len(weights)} weights but there are {len(names)} sources")
        mixture = named(names, weights)
        values = run.prepare(job, mixture)
        arguments = [part.format_map(values) for part in template]
        run.execute(arguments, timeout=self.timeout, env={**os.environ, **self.env})
        evaluation = run.read_score(from_file="score" in _names(template))
        state = CommandState(job.state.init_seed, run.read_checkpoint(evaluation), evaluation)
        if not self.keep:
            shutil.rmtree(run.folder)
        return state

    def evaluate(self, states: Sequence[CommandState]) -> list[Evaluation]:
        """The scores that the program told when it trained these models."""
        evaluations = [state.evaluation for state in states]
        if any(each is None for each in evaluations):
            raise TrainingError("a fresh model has no score: the program gives one when it trains a model")
        return [each for each in evaluations if each is not None]

    def save(self, state: CommandState) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"init_seed": np.array([state.init_seed], dtype=np.uint64)}
        for name, content in state.files.items():
            arrays[f"file/{name}"] = content
        if state.evaluation is not None:
            arrays["score"] = np.array([state.evaluation.value, state.evaluation.standard_error])
            if state.evaluation.predictions is not None:
                arrays["predictions"] = state.evaluation.predictions
        return arrays

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> CommandState:
        files = {
            name.removeprefix("file/"): from_bytes(as_bytes(content))
            for name, content in arrays.items()
            if name.startswith("file/")
        }
        evaluation = None
        if "score" in arrays:
            value, error = (float(number) for number in arrays["score"])
            predictions = np.array(arrays["predictions"]) if "predictions" in arrays else None
            evaluation = Evaluation(value, error, predictions)
        return CommandState(int(arrays["init_seed"][0]), files, evaluation)

    def export(self, state: CommandState, path: str | os.PathLike[str]) -> None:
        """Write the checkpoint to a path where nothing is yet, as the program wrote it."""
        if not state.files:
            raise TrainingError("this model has no checkpoint: it is fresh, or it diverged")
        target = Path(path)
        if target.exists() or target.is_symlink():
            raise InputError(f"{target} is there already: give the path of a file or folder that is not")
        _write(state.files, target)

    def describe(self) -> dict[str, Any]:
        """The settings that decide the numbers."""
        return {
            "trainer": "command",
            "command": self.command,
            "fresh_command": self.fresh_command,
            "sources": list(self.names),
        }


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the program, in a folder of its own."""

    folder: Path
    suffix: str
    cwd: Path | None

    @property
    def out(self) -> Path:
        return self.folder / f"out{self.suffix}"

    @property
    def score(self) -> Path:
        return self.folder / "score.json"

    def prepare(self, job: Job[CommandState], mixture: dict[str, float]) -> dict[str, Any]:
        """Write what the program reads; the values of the template's names."""
        init = self.folder / f"init{self.suffix}"
        if job.state.files:
            _write(job.state.files, init)
        mixture_file = self.folder / "mixture.json"
        mixture_file.write_text(json.dumps(mixture), encoding="utf-8")
        return {
            "init": init if job.state.files else "",
            "out": self.out,
            "mixture": ",".join(map(repr, mixture.values())),
            "mixture_json": json.dumps(mixture),
            "mixture_file": mixture_file,
            "steps": job.steps,
            "seed": job.seed,
            "init_seed": job.state.init_seed,
            "lr_scale": float(job.lr_scale),
            "score": self.score,
            "folder": self.folder,
        }

    def execute(self, arguments: list[str], *, timeout: float | None, env: dict[str, str]) -> None:
        # Into files and not pipes: a program that leaves children behind would keep a pipe open for ever.
        with (self.folder / "stdout").open("wb") as stdout, (self.folder / "stderr").open("wb") as stderr:
            try:
                code = run_program(
                    arguments, stdout=stdout, stderr=stderr, cwd=self.cwd, env=env, timeout=timeout
                )
            except OSError as error:
                raise self.failure(f"cannot start {shlex.join(arguments)}: {error}") from error
            except subprocess.TimeoutExpired as error:
                raise self.failure(f"{shlex.join(arguments)} took longer than {timeout:g} seconds") from error
        if code != 0:
            ended = f"ended with exit code {code}" if code > 0 else f"was stopped by signal {-code}"
            raise self.failure(f"{shlex.join(arguments)} {ended}")

    def failure(self, what: str) -> TrainingError:
        """The error to raise, with the end of what the program had to say."""
        lines = _tail(self.folder / "stderr").strip().splitlines()[-_QUOTED:]
        said = "\n".join(["; its stderr ends with", *lines]) if lines else "; it wrote nothing to stderr"
        return TrainingError(f"{what} (its folder was kept: {self.folder}){said}")

    def read_score(self, *, from_file: bool) -> Evaluation:
        if from_file:
            where, text = "the file {score}", _tail(self.score)
        else:
            lines = _tail(self.folder / "stdout").strip().splitlines()
            where, text = "the last line of stdout", lines[-1] if lines else ""
        try:
            score = json.loads(text)
        except ValueError:
            score = None
        if not isinstance(score, dict) or not ("loss" in score or "diverged" in score):
            raise self.failure(f'{where} must be a score such as {{"loss": 0.31}}; found {text[:200]!r}')
        value = float("inf") if score.get("diverged") else _number(score.get("loss"))
        spread = _number(score.get("standard_error", float("nan")))
        if value is None or spread is None or spread < 0:
            raise self.failure(f"{where} has a loss or standard error that is no number: {text[:200]!r}")
        if not np.isfinite(value):
            return Evaluation(float("inf"))
        path = score.get("predictions")
        if path is None:
            return Evaluation(value, spread)
        try:
            array = np.load((self.cwd or Path()) / str(path), allow_pickle=False)
            predictions = array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)
        except (EOFError, OSError, ValueError) as error:
            raise self.failure(f"the score's predictions {path!r} cannot be read: {error}") from error
        if predictions.ndim not in (1, 2):
            raise self.failure(
                f"the score's predictions must be (n, classes) or (n,); got {predictions.shape}"
            )
        return Evaluation(value, spread, predictions)

    def read_checkpoint(self, evaluation: Evaluation) -> Files:
        if self.out.is_file():
            return {"": from_bytes(self.out.read_bytes())}
        paths = sorted(path for path in self.out.rglob("*") if path.is_file())
        if not paths and np.isfinite(evaluation.value):
            raise self.failure(f"the program ended well but wrote no checkpoint to {self.out}")
        return {path.relative_to(self.out).as_posix(): from_bytes(path.read_bytes()) for path in paths}


def _template(command: str | Sequence[str], what: str, needed: set[str]) -> list[str]:
    """The template's arguments, with nothing but known names in them."""
    try:
        parts = shlex.split(command) if isinstance(command, str) else list(command)
        found = _names(parts)
    except ValueError as error:
        raise InputError(f"{what} {command!r} cannot be read: {error}") from error
    known = ", ".join(f"{{{name}}}" for name in sorted(_KNOWN))
    if unknown := found - _KNOWN:
        names = ", ".join(f"{{{name}}}" for name in sorted(unknown))
        raise InputError(f"{what} names {names}; it can name {known}, and {{{{ }}}} stand for braces")
    if missing := needed - found:
        names = ", ".join(f"{{{name}}}" for name in sorted(missing))
        raise InputError(f"{what} must also name {names}: the program cannot know it else")
    if not found & _MIXTURES:
        raise InputError(f"{what} must name {{mixture}}, {{mixture_json}} or {{mixture_file}}")
    return parts


def _names(parts: Sequence[str]) -> set[str]:
    return {name for part in parts for _, name, _, _ in Formatter().parse(part) if name is not None}


def _number(value: object) -> float | None:
    """A number, NaN for what stands for it, or None."""
    if value is None or value == "diverged":  # null is what many JSON writers make of NaN
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _write(files: Files, path: Path) -> None:
    if list(files) == [""]:
        path.write_bytes(files[""].tobytes())
        return
    for name, content in files.items():
        relative = PurePosixPath(name)
        if not name or relative.is_absolute() or ".." in relative.parts:
            raise TrainingError(f"a saved checkpoint has a file {name!r}, which lies outside its folder")
        target = path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.tobytes())


def _tail(path: Path) -> str:
    """The end of a text file; nothing where there is no file."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read().decode("utf-8", errors="replace")
