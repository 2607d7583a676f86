from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError, TrainingError
from mixtree.partition import PARTITIONS
from mixtree.testing import check_trainer
from mixtree.trainer import Job
from mixtree.trainers.command import CommandTrainer
from mixtree.tree_search import TreeSearch

EVEN = np.array([0.5, 0.5])
PYTHON = shlex.quote(sys.executable)

LOGISTIC = '''
"""Logistic regression by SGD on rows of a file: a user's program that knows nothing of mixtree."""
import argparse, json, math, pathlib, random

parser = argparse.ArgumentParser()
for name in ("data", "init", "out", "mixture", "score", "predictions"):
    parser.add_argument(f"--{name}", default="")
for name in ("steps", "seed", "init-seed"):
    parser.add_argument(f"--{name}", type=int, default=0)
parser.add_argument("--lr-scale", type=float, default=1.0)
args = parser.parse_args()

data = json.loads(pathlib.Path(args.data).read_text())
weights = [float(part) for part in args.mixture.split(",")]
if args.init:
    w = json.loads(pathlib.Path(args.init).read_text())
else:
    start = random.Random(args.init_seed)
    w = [start.gauss(0.0, 0.01) for _ in data["validation"][0][0]]


def probability(x):
    return 1 / (1 + math.exp(-sum(a * b for a, b in zip(x, w))))


stream = random.Random(args.seed)
for _ in range(args.steps):
    batch = [stream.choice(data["sources"][k]) for k in stream.choices(range(len(weights)), weights, k=10)]
    errors = [probability(x) - y for x, y in batch]
    for j in range(len(w)):
        w[j] -= 0.1 * args.lr_scale * sum(e * x[j] for e, (x, _) in zip(errors, batch)) / len(batch)
found = [probability(x) for x, _ in data["validation"]]
losses = [-math.log(p if y else 1 - p) for p, (_, y) in zip(found, data["validation"])]
mean = sum(losses) / len(losses)
spread = math.sqrt(sum((loss - mean) ** 2 for loss in losses) / (len(losses) - 1))
score = {"loss": mean, "standard_error": spread / math.sqrt(len(losses))}
pathlib.Path(args.out).write_text(json.dumps(w))
if args.predictions:
    import numpy

    numpy.save(args.predictions, [[1 - p, p] for p in found])
    score["predictions"] = args.predictions
print("a line of log")
if args.score:
    pathlib.Path(args.score).write_text(json.dumps(score))
else:
    print(json.dumps(score))
'''


@pytest.fixture(scope="module")
def logistic(tmp_path_factory) -> str:
    """The start of a command that runs the program on a file of data."""
    folder = tmp_path_factory.mktemp("program with a space")
    (folder / "train.py").write_text(LOGISTIC)
    sources = synthetic(sources=2, rows=200, validation=80, test=10, features=4, seed=1).sources
    rows = [list(zip(part.x.tolist(), part.y.tolist(), strict=True)) for part in sources.rows]
    validation = zip(sources.validation.x.tolist(), sources.validation.y.tolist(), strict=True)
    data = {"sources": rows, "validation": list(validation)}
    (folder / "data.json").write_text(json.dumps(data))
    program, file = (shlex.quote(str(folder / name)) for name in ("train.py", "data.json"))
    return (
        f"{PYTHON} {program} --data {file} --init {{init}} --out {{out}} --mixture {{mixture}} "
        "--steps {steps} --seed {seed} --init-seed {init_seed} --lr-scale {lr_scale}"
    )


def script(code: str, names: str = "{init} {out} {mixture} {steps}") -> str:
    """A command that runs this code; ``out`` is its second argument."""
    head = "import json, os, pathlib, sys, time; out = pathlib.Path(sys.argv[2]); "
    return f"{PYTHON} -c {shlex.quote((head + code).replace('{', '{{').replace('}', '}}'))} {names}"


GOOD = "out.write_text('x'); print(json.dumps({'loss': 0.5}))"


def one(trainer: CommandTrainer, state=None, *, steps: int = 3, seed: int = 1, lr_scale: float = 1.0):
    start = trainer.init(0) if state is None else state
    return trainer.train([Job(start, EVEN, steps, seed, lr_scale)])[0]


def make(command: str, tmp_path: Path, **options) -> CommandTrainer:
    return CommandTrainer(command, ["a", "b"], folder=tmp_path / "runs", **options)


def test_a_program_keeps_the_promises_of_a_trainer(logistic, tmp_path):
    trainer = make(logistic, tmp_path)
    check_trainer(trainer, sources=2, steps=2)
    assert list((tmp_path / "runs").iterdir()) == []


def test_score_and_predictions_by_file(logistic, tmp_path):
    plain = make(logistic, tmp_path)
    expected = plain.evaluate([one(plain)])[0]
    trainer = make(logistic + " --score {score} --predictions {folder}/predictions.npy", tmp_path)
    state = one(trainer)
    for each in (state, trainer.load(trainer.save(state))):
        evaluation = trainer.evaluate([each])[0]
        assert evaluation.value == expected.value
        assert 0 < evaluation.standard_error == expected.standard_error
        assert evaluation.predictions.shape == (80, 2)
    assert expected.predictions is None


def test_the_step_size_is_scaled(logistic, tmp_path):
    trainer = make(logistic, tmp_path)
    still, moved = (json.loads(one(trainer, lr_scale=scale).files[""].tobytes()) for scale in (0.0, 1.0))
    assert still != moved


def test_a_study_runs_a_program_from_end_to_end(logistic, tmp_path):
    trainer = make(logistic, tmp_path)
    bisect = PARTITIONS["bisect"]
    search = TreeSearch(bisect.root(2), bisect.split, budget=500, steps=100)
    result = run(search, trainer, seed=5)
    assert result.value < np.log(2) - 0.02
    assert len(result.tree) == 5
    trainer.export(result.state, tmp_path / "best.json")
    assert len(json.loads((tmp_path / "best.json").read_text())) == 4


def test_the_program_gets_what_the_job_says(tmp_path):
    code = "out.write_text(json.dumps(sys.argv[1:])); print(json.dumps({'loss': 1}))"
    names = "{init} {out} {mixture} {mixture_json} {mixture_file} {steps} {seed} {init_seed} {lr_scale} "
    names += "{{{steps:03d}}}"
    trainer = make(script(code, names), tmp_path, suffix=".json", keep=True)
    first = trainer.train([Job(trainer.init(2**64 - 1), np.array([0.1, 0.9]), 7, 2**63, 0.25)])[0]
    init, out, mixture, as_json, file, *rest = json.loads(first.files[""].tobytes())
    assert init == ""
    assert Path(out).suffix == ".json"
    assert mixture == "0.1,0.9"
    assert json.loads(as_json) == json.loads(Path(file).read_text()) == {"a": 0.1, "b": 0.9}
    assert rest == ["7", str(2**63), str(2**64 - 1), "0.25", "{007}"]
    second = trainer.train([Job(first, np.array([0.1, 0.2, 0.7]), 7, 1)])[0]
    init, _, mixture, as_json, *_ = json.loads(second.files[""].tobytes())
    assert Path(init).read_bytes() == first.files[""].tobytes()
    assert mixture == "0.1,0.2,0.7"
    assert json.loads(as_json)["target"] == 0.7


def test_a_fresh_model_may_have_a_command_of_its_own(tmp_path):
    fresh = script(
        "out.write_text('fresh'); print(json.dumps({'loss': 1}))", "- {out} {mixture_file} {steps}"
    )
    later = script(
        "out.write_text(pathlib.Path(sys.argv[1]).read_text() + '+'); print(json.dumps({'loss': 1}))"
    )
    trainer = make(later, tmp_path, fresh_command=fresh)
    state = one(trainer, one(trainer, one(trainer)))
    assert state.files[""].tobytes() == b"fresh++"


def test_a_checkpoint_may_be_a_folder(tmp_path):
    code = (
        "(out / 'deep').mkdir(parents=True); old = pathlib.Path(sys.argv[1]) / 'deep' / 'w'; "
        "(out / 'deep' / 'w').write_text((old.read_text() if sys.argv[1] else '') + '.'); "
        "(out / 'empty').touch(); print(json.dumps({'loss': 1}))"
    )
    trainer = make(script(code), tmp_path)
    state = trainer.load(trainer.save(one(trainer)))
    state = one(trainer, state)
    assert {name: content.tobytes() for name, content in state.files.items()} == {
        "deep/w": b"..",
        "empty": b"",
    }
    trainer.export(state, tmp_path / "copy")
    assert (tmp_path / "copy" / "deep" / "w").read_text() == ".."
    with pytest.raises(TrainingError, match="outside its folder"):
        trainer.export(
            trainer.load({**trainer.save(state), "file/../x": np.zeros(1, np.uint8)}), tmp_path / "c"
        )


@pytest.mark.parametrize(
    "score",
    ["{'loss': float('nan')}", "{'loss': float('-inf')}", "{'loss': None}", "{'loss': 'diverged'}",
     "{'loss': 'NaN'}", "{'diverged': True}"],
)  # fmt: skip
def test_a_diverged_program_is_an_outcome(tmp_path, score):
    trainer = make(script(f"print(json.dumps({score}))"), tmp_path)
    state = trainer.load(trainer.save(one(trainer)))
    assert trainer.evaluate([state])[0].value == np.inf
    assert one(trainer, state) is state
    with pytest.raises(TrainingError, match="no checkpoint"):
        trainer.export(state, tmp_path / "nothing")


def test_an_exit_code_is_loud_and_quotes_stderr(tmp_path):
    code = "print(*range(99), 'CUDA is sad', sep='\\n', file=sys.stderr); sys.exit(3)"
    trainer = make(script(code), tmp_path)
    with pytest.raises(TrainingError, match=r"exit code 3(?s:.*)\n98\nCUDA is sad$") as caught:
        one(trainer)
    assert "\n50\n" not in str(caught.value)
    (kept,) = (tmp_path / "runs").iterdir()
    assert str(kept) in str(caught.value)
    assert "CUDA is sad" in (kept / "stderr").read_text()


def test_an_exit_code_stops_a_study(tmp_path):
    bisect = PARTITIONS["bisect"]
    search = TreeSearch(bisect.root(2), bisect.split, budget=50, steps=10)
    with pytest.raises(TrainingError, match="exit code 3"):
        run(search, make(script("sys.exit(3)"), tmp_path))
    assert len(search.tree) == 0


def test_a_signal_is_named(tmp_path):
    with pytest.raises(TrainingError, match="signal 9; it wrote|signal 9 .*it wrote nothing"):
        one(make(script("os.kill(os.getpid(), 9)"), tmp_path))


def test_a_time_out_ends_the_program_and_its_children(tmp_path):
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid"
    code = f"import subprocess; pathlib.Path(sys.argv[3]).write_text(str({child})); time.sleep(60)"
    file = shlex.quote(str(tmp_path / "pid"))
    trainer = make(script(code, f"{{init}} {{out}} {file} {{mixture}} {{steps}}"), tmp_path, timeout=3)
    start = time.monotonic()
    with pytest.raises(TrainingError, match=r"took longer than 3 seconds"):
        one(trainer)
    assert time.monotonic() - start < 20
    assert _ends(int((tmp_path / "pid").read_text()))


STUDY = """
import sys
from mixtree.partition import PARTITIONS
from mixtree.tree_search import TreeSearch
from mixtree.engine.study import run
from mixtree.trainers.command import CommandTrainer

if __name__ == "__main__":
    command, folder, workers = sys.argv[1:]
    bisect = PARTITIONS["bisect"]
    search = TreeSearch(bisect.root(2), bisect.split, budget=50, steps=10)
    run(search, CommandTrainer(command, ["a", "b"], folder=folder), workers=int(workers))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
@pytest.mark.parametrize(
    ("workers", "signals"),
    [
        (1, [signal.SIGKILL]),
        (1, [signal.SIGTERM]),
        (2, [signal.SIGKILL]),
        (2, [signal.SIGTERM]),
        (2, [signal.SIGINT, signal.SIGINT]),
    ],
)
def test_a_program_does_not_outlive_its_study(tmp_path, workers, signals):
    file = tmp_path / "study.py"
    file.write_text(STUDY)
    marker = tmp_path / "pid"
    # Renamed when it is whole: a file that is there has the number in it.
    code = "p = pathlib.Path(sys.argv[3]); q = p.with_suffix('.part'); q.write_text(str(os.getpid())); "
    code += "q.rename(p); time.sleep(60)"
    command = script(code, f"{{init}} {{out}} {shlex.quote(str(marker))} {{mixture}} {{steps}} {{seed}}")
    with (tmp_path / "stderr").open("wb") as stderr:
        study = subprocess.Popen(
            [sys.executable, str(file), command, str(tmp_path / "runs"), str(workers)], stderr=stderr
        )
    try:
        assert _soon(marker.exists), (tmp_path / "stderr").read_text()
        pid = int(marker.read_text())
        assert _running(pid)
        for number in signals:
            study.send_signal(number)
            time.sleep(0.3)
        study.wait(timeout=30)
    finally:
        study.kill()
        study.wait()
    assert _ends(pid)


def _soon(condition) -> bool:
    end = time.monotonic() + 30
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return met


def _ends(pid: int) -> bool:
    return _soon(lambda: not _running(pid))


def _running(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("print('done')", "'done'"),
        ("pass", "found ''"),
        ("print(json.dumps([0.5]))", "0.5"),
        ("print(json.dumps({'accuracy': 0.5}))", "accuracy"),
        ("print(json.dumps({'loss': 'good'}))", "no number"),
        ("print(json.dumps({'loss': True}))", "no number"),
        ("print(json.dumps({'loss': 1, 'standard_error': -1}))", "no number"),
        ("print(json.dumps({'loss': 1, 'predictions': 'nowhere.npy'}))", "cannot be read"),
        ("print(json.dumps({'loss': 1, 'predictions': sys.argv[2]}))", "cannot be read"),
    ],
)
def test_a_score_that_is_none_is_quoted(tmp_path, output, found):
    with pytest.raises(TrainingError, match=found):
        one(make(script(f"out.write_text('x'); {output}"), tmp_path))


def test_a_score_file_that_was_not_written(tmp_path):
    trainer = make(script(GOOD, "{init} {out} {mixture} {steps} {score}"), tmp_path)
    with pytest.raises(TrainingError, match=r"the file \{score\} must be a score"):
        one(trainer)


@pytest.mark.parametrize("code", ["pass", "out.mkdir()"])
def test_a_missing_checkpoint(tmp_path, code):
    with pytest.raises(TrainingError, match="wrote no checkpoint"):
        one(make(script(f"{code}; print(json.dumps(dict(loss=1)))"), tmp_path))


def test_a_program_that_does_not_exist(tmp_path):
    with pytest.raises(TrainingError, match="cannot start no-such-program"):
        one(make("no-such-program {init} {out} {mixture} {steps}", tmp_path))


def test_retries_try_again(tmp_path):
    marker = shlex.quote(str(tmp_path / "marker"))
    code = (
        "p = pathlib.Path(sys.argv[3]); n = len(p.read_text()) if p.exists() else 0; "
        f"p.write_text('x' * (n + 1)); n < 2 and sys.exit(1); {GOOD}"
    )
    command = script(code, f"{{init}} {{out}} {marker} {{mixture}} {{steps}}")
    with pytest.raises(TrainingError, match="exit code 1"):
        one(make(command, tmp_path, retries=1))
    (tmp_path / "marker").unlink()
    trainer = make(command, tmp_path, retries=2)
    assert trainer.evaluate([one(trainer)])[0].value == 0.5


def test_env_and_cwd_reach_the_program(tmp_path):
    code = f"{GOOD}; out.write_text(os.environ['COLOUR'] + os.environ['PATH'] + os.getcwd())"
    trainer = make(script(code), tmp_path, env={"COLOUR": "blue"}, cwd=tmp_path)
    text = one(trainer).files[""].tobytes().decode()
    assert text == "blue" + os.environ["PATH"] + os.path.realpath(tmp_path)


def test_nothing_is_read_by_a_shell(tmp_path):
    code = "out.write_text(sys.argv[3]); print(json.dumps({'loss': 1}))"
    trainer = make(script(code, "{init} {out} '$(echo no); *' {mixture} {steps}"), tmp_path)
    assert one(trainer).files[""].tobytes() == b"$(echo no); *"


def test_a_fresh_model_has_no_score(tmp_path):
    trainer = make(script(GOOD), tmp_path)
    with pytest.raises(TrainingError, match="fresh model has no score"):
        trainer.evaluate([trainer.init(0)])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train --out {out} --mixture {mixture} --steps {steps}", r"must also name \{init\}"),
        ("train {init} {mixture}", r"must also name \{out\}, \{steps\}"),
        ("train {init} {out} {steps}", r"must name \{mixture\}, \{mixture_json\}"),
        ("train {init} {out} {steps} {mixture} {wat}", r"names \{wat\}; it can name"),
        ("train {init} {out} {steps} {mixture} {out.parent}", r"names \{out\.parent\}"),
        ("train {init} {out} {steps} {mixture} {", "cannot be read"),
        ("train 'unclosed {init}", "cannot be read"),
    ],
)
def test_templates_that_cannot_work_are_refused(command, message):
    with pytest.raises(InputError, match=message):
        CommandTrainer(command, ["a", "b"])


def test_settings_that_cannot_work_are_refused(tmp_path):
    for names in ([], ["a", "a"], ["target"]):
        with pytest.raises(InputError, match="need names that differ"):
            CommandTrainer(script(GOOD), names)
    with pytest.raises(InputError, match="time-out"):
        make(script(GOOD), tmp_path, timeout=0)
    with pytest.raises(InputError, match="retries"):
        make(script(GOOD), tmp_path, retries=-1)
    trainer = make(script(GOOD), tmp_path)
    with pytest.raises(InputError, match="4 weights but there are 2 sources"):
        trainer.train([Job(trainer.init(0), np.full(4, 0.25), 1, 1)])


def test_an_export_overwrites_nothing(tmp_path):
    trainer = make(script(GOOD), tmp_path)
    state = one(trainer)
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "folder", "link"):
        with pytest.raises(InputError, match=f"{name} is there already"):
            trainer.export(state, tmp_path / name)
    assert (tmp_path / "file").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_command_without_the_seed_is_warned_of_once(tmp_path, caplog):
    names = "{init} {out} {mixture} {steps}"
    make(script(GOOD, names), tmp_path)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "command does not name {seed}: the same seed must give the same model" in record.getMessage()
    make(script(GOOD, f"{names} {{seed}}"), tmp_path, fresh_command=script(GOOD, names))
    assert "the fresh_command does not name {seed}" in caplog.records[1].getMessage()
    make(script(GOOD, f"{names} {{seed}}"), tmp_path)
    assert len(caplog.records) == 2


def test_a_step_size_that_is_ignored_is_warned_of_once(tmp_path, caplog):
    names = "{init} {out} {mixture} {steps} {seed}"
    trainer = make(script(GOOD, names), tmp_path)
    state = one(trainer)
    assert not caplog.records
    one(trainer, state, lr_scale=0.1)
    one(trainer, state, lr_scale=0.1)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "does not name {lr_scale}" in record.getMessage()
    assert "0.1 times" in record.getMessage()
    one(make(script(GOOD, f"{names} {{lr_scale}}"), tmp_path), lr_scale=0.1)
    assert len(caplog.records) == 1


def test_describe_is_plain_data_that_names_the_command(tmp_path):
    description = make(script(GOOD), tmp_path).describe()
    assert json.loads(json.dumps(description)) == description
    assert description["sources"] == ["a", "b"]
    assert "{mixture}" in description["command"]
