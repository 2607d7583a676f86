import functools
import json
import logging
import pickle
import random
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from scipy import sparse
from torch import nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from mixtree.data.sources import Rows, Sources
from mixtree.errors import DataError, InputError, TrainingError
from mixtree.simplex import uniform_mixture
from mixtree.testing import check_trainer
from mixtree.trainer import Job
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.trainers.torch import choice as torch_choice
from mixtree.trainers.torch.state import pack, unpack
from mixtree.trainers.torch.trainer import TorchTrainer

SGD = functools.partial(torch.optim.SGD, lr=0.1)
MOMENTUM = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01)
NESTEROV = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True)
ADAM = functools.partial(torch.optim.Adam, lr=0.01)
ADAMW = functools.partial(torch.optim.AdamW, lr=0.01)
STEPS = functools.partial(torch.optim.lr_scheduler.StepLR, step_size=4, gamma=0.5)
ENGINES = ("eager", "traced", "vmap")
FEATURES, CLASSES = 6, 3


def make_sources(
    *, classes: int = CLASSES, weighted: bool = False, form: Any = None, seed: int = 0
) -> Sources:
    random = np.random.default_rng(seed)

    def rows(count: int) -> Rows:
        x = random.normal(size=(count, FEATURES)).astype(np.float32)
        score = x @ np.linspace(-1, 1, FEATURES)
        y = np.digitize(score, np.linspace(-0.5, 0.5, classes - 1)) if classes else score
        weight = random.uniform(0.2, 2.0, count) if weighted else None
        return Rows(x if form is None else form(x), y, weight)

    given = rows(60), rows(40)
    return Sources(("a", "b"), given, replace(rows(30), weight=None), classes)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def regressor() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))


def normalised() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES)
    )


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.norm = nn.LayerNorm(4 * FEATURES)
        self.last = nn.Linear(4 * FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.table(x).flatten(1)))


class Branching(nn.Module):
    """What it computes depends on the values it sees: no trace can hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.sum() > 0 else self.layer(x).tanh()


class Counting(nn.Module):
    """It puts a new tensor in its buffer's place at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.zeros(FEATURES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.layer(x - self.mean)


class Drawing(nn.Module):
    """It adds noise of some kind to what it sees, in these modes."""

    def __init__(self, kind: str, modes: tuple[bool, ...] = (True, False)) -> None:
        super().__init__()
        self.kind, self.modes = kind, modes
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.scale = nn.Parameter(torch.tensor(noise[kind]()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x + (noise[self.kind]() if self.training in self.modes else 0.0)) * self.scale


noise = {
    "python": lambda: random.gauss(0, 1),
    "numpy": lambda: float(np.random.normal()),
    "torch": lambda: float(torch.randn(())),
}


class Factored(nn.Module):
    """Products of parameters: the gradient of each is made of others, which move in the same step."""

    def __init__(self) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.randn(FEATURES, 4) / 2)
        self.v = nn.Parameter(torch.randn(4, CLASSES) / 2)
        self.p = nn.Parameter(torch.randn(CLASSES) / 2)
        self.q = nn.Parameter(torch.randn(CLASSES) / 2)
        self.unused = nn.Parameter(torch.randn(2))
        self.frozen = nn.Parameter(torch.randn(CLASSES), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.u @ self.v) + self.p * self.q + self.frozen


class Greedy(nn.Module):
    """It has no memory for more than some rows at a time."""

    rows = 8

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return self.layer(x)


def images(x: np.ndarray) -> np.ndarray:
    return np.repeat(x[:, None, :, None], FEATURES, axis=3)


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES))


def make(module: Any = mlp, sources: Sources | None = None, **options: Any) -> TorchTrainer:
    given: dict[str, Any] = {"batch_size": 10, "engine": "eager", **options}
    return TorchTrainer(make_sources() if sources is None else sources, module, **given)


def trained(trainer: TorchTrainer, *, steps: int = 20, seed: int = 3, **options: Any) -> Any:
    return trainer.train([Job(trainer.init(1), uniform_mixture(2), steps, seed, **options)])[0]


def flat(state: Any) -> np.ndarray:
    return np.concatenate([x.double().numpy().ravel() for x in state.tensors.values()])


def same(trainer: TorchTrainer, one: Any, two: Any) -> bool:
    first, second = trainer.save(one), trainer.save(two)
    return first.keys() == second.keys() and all(np.array_equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": SGD},
        {"optimizer": MOMENTUM},
        {"optimizer": ADAM},
        {"optimizer": ADAMW, "clip_norm": 0.5},
        {"optimizer": functools.partial(torch.optim.LBFGS, max_iter=3)},
        {"optimizer": lambda p: torch.optim.Adam([{"params": p[:2]}, {"params": p[2:], "lr": 0.1}], lr=0.01)},
        {"scheduler": STEPS},
        {"scheduler": functools.partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[3, 5])},
        {"module": normalised, "optimizer": MOMENTUM},
        {"module": dropping},
        {"module": convolution, "sources": make_sources(form=images)},
        {"module": Embedded, "sources": make_sources(form=lambda x: np.abs(x * 3).astype(int) % 9)},
        {"module": Counting},
        {"module": Factored, "optimizer": ADAMW},
        {"sources": make_sources(weighted=True), "class_weight": {1: 3.0}},
        {"replacement": False, "reset_optimizer": True, "optimizer": MOMENTUM, "scheduler": STEPS},
        {"amp": True},
    ],
)
def test_eager_conformance(options: dict[str, Any]) -> None:
    trainer = make(**options)
    check_trainer(trainer, sources=2, rows=30)
    assert (trainer.engine, trainer.group) == ("eager", None)


def test_the_traced_engine_conforms() -> None:
    for options in ({"optimizer": MOMENTUM}, {"module": normalised, "optimizer": ADAM, "clip_norm": 0.1}):
        trainer = make(**options, engine="traced")
        assert (trainer.engine, trainer.group) == ("traced", None)
        check_trainer(trainer, sources=2, rows=30)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": SGD},
        {"optimizer": functools.partial(SGD, weight_decay=0.01), "sources": make_sources(weighted=True)},
        {"optimizer": MOMENTUM, "scheduler": STEPS},
        {"optimizer": NESTEROV, "clip_norm": 0.1},
        {"optimizer": ADAM, "scheduler": STEPS, "class_weight": [1, 2, 3]},
        {"module": convolution, "sources": make_sources(form=images)},
        {"module": Embedded, "sources": make_sources(form=lambda x: np.abs(x * 3).astype(int) % 9)},
        {"module": normalised, "optimizer": MOMENTUM},
        {"module": Factored},
        {"module": Factored, "optimizer": MOMENTUM},
        {"loss": lambda output, y: nn.functional.cross_entropy(output, y), "optimizer": MOMENTUM},
        {"module": regressor, "sources": make_sources(classes=0), "loss": nn.L1Loss(reduction="none")},
    ],
)
def test_models_trained_together_or_alone_agree_with_the_eager_loop(options: dict[str, Any]) -> None:
    fast, slow = make(**options, engine="vmap"), make(**options)
    assert (fast.engine, fast.group) == ("vmap", 8)
    check_trainer(fast, sources=2, rows=30)
    start = slow.init(1)
    jobs = [Job(start, np.array([a, 1 - a]), steps, seed, scale) for a, steps, seed, scale in _JOBS]
    first = _same_up_to_rounding(slow, fast, jobs)
    # A second round goes on from the first one's optimizer state.
    again = [Job(first[place], np.array([0.3, 0.7]), 7, 5) for place in (0, 1, 4)]
    _same_up_to_rounding(slow, fast, again)


def _same_up_to_rounding(slow: TorchTrainer, fast: TorchTrainer, jobs: list[Job[Any]]) -> list[Any]:
    exact = slow.train(jobs)
    for one, two in zip(exact, fast.train(jobs), strict=True):
        assert flat(two) == pytest.approx(flat(one), rel=1e-3, abs=1e-4)
        assert one.optimizer["groups"] == two.optimizer["groups"]
        assert one.scheduler == two.scheduler
        assert np.array_equal(one.cursor.drawn, two.cursor.drawn)
    return exact


_JOBS = [(0.5, 12, 0, 1.0), (0.1, 12, 1, 1.0), (0.9, 12, 2, 0.5), (0.2, 5, 3, 1.0), (0.3, 12, 4, 1.0)]


def test_dropout_is_traced_one_model_at_a_time(caplog: Any) -> None:
    slow, fast = make(dropping), make(dropping, engine="vmap")
    with caplog.at_level(logging.WARNING):
        assert fast.engine == "traced"
    assert "(RuntimeError: vmap: called random operation" in caplog.text
    assert "using engine traced" in caplog.text
    check_trainer(fast, sources=2)
    assert flat(trained(fast)) == pytest.approx(flat(trained(slow)), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("module", [Branching, Counting])
@pytest.mark.parametrize("engine", ["auto", "traced", "vmap"])
def test_what_no_trace_can_hold_falls_back_to_the_eager_loop(module: Any, engine: str) -> None:
    trainer = make(module, engine=engine)
    assert (trainer.engine, trainer.group) == ("eager", None)
    assert same(trainer, trained(trainer), trained(make(module)))


def test_a_wrong_trace_of_a_single_number_is_noticed() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.calls = nn.Parameter(torch.tensor(0.1)), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x[:, :CLASSES] * self.scale * self.calls

    assert make(Growing, optimizer=ADAMW, engine="traced").engine == "eager"


def test_auto_takes_the_engine_that_is_faster_and_says_so(caplog: Any) -> None:
    trainer = make(engine="auto")
    with caplog.at_level(logging.INFO):
        assert trainer.engine in ("traced", "vmap")  # a step of so small a model is all overhead
    assert f"engine {trainer.engine}: microseconds per step" in caplog.text
    again = make(engine="eager")
    again.engine = trainer.engine
    assert same(trainer, trained(again), trained(trainer))
    with pytest.raises(InputError, match="unknown engine 'fast'"):
        trainer.engine = "fast"


def _refused(*_args: Any, **_options: Any) -> Any:
    raise AssertionError("an engine was tried")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"steps": 9_999}, "choosing another one pays from 10,000 steps on"),
        ({"steps": 10**9, "seconds": 0.01}, "the time limit is too short to choose another one"),
    ],
)
def test_a_study_too_short_to_choose_an_engine_takes_the_eager_loop(
    given: dict[str, Any], told: str, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_choice, "TracedEngine", _refused)
    trainer = make(engine="auto")
    with caplog.at_level(logging.INFO):
        trainer.prepare(**given)
    assert trainer.engine == "eager"
    assert f"engine eager: {told}" in caplog.text


def test_only_engines_that_a_study_has_time_to_try_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_choice, "_TIMINGS", {})
    one, many = make(engine="auto"), make(engine="auto")
    one.prepare(steps=49_999)
    many.prepare(steps=50_000)
    assert one.engine in ("eager", "traced")
    assert sorted(map(sorted, torch_choice._TIMINGS.values())) == [
        ["eager", "traced"],
        ["eager", "traced", "vmap"],
    ]


def test_choosing_an_engine_takes_no_more_than_its_share_of_a_study(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_choice, "_TIMINGS", {})
    plain = make()
    trained(plain)
    job = Job(plain.init(1), uniform_mixture(2), 200, 1)
    before = time.thread_time()
    plain.train([job])
    step = (time.thread_time() - before) / job.steps
    before = time.thread_time()
    make(engine="auto").prepare(steps=50_000)
    assert time.thread_time() - before < 2 * torch_choice.CHOICE_SHARE * 50_000 * step  # 2: other programs


def test_a_module_that_waits_is_not_tried_at_length_within_a_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_choice, "_TIMINGS", {})

    class Waiting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(sources.features, sources.classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.02)
            return self.layer(x)

    sources = make_sources()
    trainer = TorchTrainer(sources, Waiting)
    began = time.monotonic()
    trainer.prepare(steps=1_000_000, seconds=20)
    assert trainer.engine == "eager"
    assert time.monotonic() - began < torch_choice.CHOICE_SHARE * 20


def test_modules_that_are_alike_are_timed_once(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_choice, "_TIMINGS", {})
    with caplog.at_level(logging.INFO):
        first = make(engine="auto").engine
    assert "choosing an engine for this module: up to about" in caplog.text
    assert "timed before" not in caplog.text
    monkeypatch.setattr(torch_choice, "_timed", _refused)
    checked: list[int] = []
    check = torch_choice._checked
    monkeypatch.setattr(
        torch_choice,
        "_checked",
        lambda recipe, initial, *, group: checked.append(group) or check(recipe, initial, group=group),
    )
    caplog.clear()
    with caplog.at_level(logging.INFO):
        again = make(engine="auto").engine
    assert again == first
    assert f"engine {first}: microseconds per step and model: " in caplog.text
    assert "(timed before)" in caplog.text
    assert checked == [{"traced": 1, "vmap": 8}[first]]  # that it is right is seen to each time
    with pytest.raises(AssertionError, match="an engine was tried"):
        make(engine="auto", optimizer=ADAM).prepare()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("classes", [3, 0])
@pytest.mark.parametrize(
    ("dtype", "tolerance", "decay"), [(torch.float64, 1e-5, 0.01), (torch.float32, 1e-3, 0.0)]
)
def test_the_same_batches_give_the_weights_of_the_reference(
    engine: str, classes: int, dtype: torch.dtype, tolerance: float, decay: float
) -> None:
    sources = make_sources(classes=classes, weighted=decay > 0)
    right = ReferenceTrainer(sources, hidden=(8, 8), lr=0.05, batch_size=10, weight_decay=decay)
    start = right.init(1)
    weights = {f"{2 * k}.weight": w.T for k, w in enumerate(start.weights)}
    biases = {f"{2 * k}.bias": b for k, b in enumerate(start.biases)}

    def module() -> nn.Module:
        layers = [nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, classes or 1)]
        return nn.Sequential(*layers).to(dtype)

    optimizer = functools.partial(torch.optim.SGD, lr=0.05, weight_decay=decay)
    trainer = make(module, sources, optimizer=optimizer, init=weights | biases, engine=engine)
    assert trainer.engine == engine
    mixtures = [np.array([0.3, 0.7]), np.array([0.6, 0.4])]
    ours = trainer.train([Job(trainer.init(1), mixture, 50, 7) for mixture in mixtures])
    for mixture, state in zip(mixtures, ours, strict=True):
        theirs = right.train([Job(start, mixture, 50, 7)])[0]
        for k, (weight, bias) in enumerate(zip(theirs.weights, theirs.biases, strict=True)):
            for mine, exact in ((f"{2 * k}.weight", weight.T), (f"{2 * k}.bias", bias)):
                error = np.abs(state.tensors[mine].double().numpy() - exact).max()
                assert error <= tolerance * np.abs(exact).max()
        assert trainer.evaluate([state])[0].value == pytest.approx(
            right.evaluate([theirs])[0].value, rel=1e-3
        )


def test_class_weights_are_row_weights() -> None:
    sources = make_sources()
    factors = np.array([1.0, 2.0, 5.0])
    by_row = replace(sources, rows=tuple(Rows(each.x, each.y, factors[each.y]) for each in sources.rows))
    states = [
        trained(make(sources=by_row)),
        trained(make(class_weight=[1, 2, 5])),
        trained(make(class_weight={1: 2.0, 2: 5.0})),
    ]
    assert np.array_equal(flat(states[0]), flat(states[1]))
    assert np.array_equal(flat(states[0]), flat(states[2]))
    assert not np.allclose(flat(states[0]), flat(trained(make())), atol=1e-3)


def test_one_output_per_row_never_broadcasts_against_labels_or_weights() -> None:
    sources = make_sources(classes=0, weighted=True)
    plain = make(regressor, sources)
    column = make(regressor, sources, loss=nn.MSELoss(reduction="none"))  # (n, 1) losses, (n,) weights
    assert flat(trained(column)) == pytest.approx(flat(trained(plain)), rel=1e-5, abs=1e-6)
    state = trained(plain)
    ours, theirs = (each.evaluate([state])[0] for each in (plain, column))
    assert theirs.value == pytest.approx(ours.value, rel=1e-5)
    assert theirs.standard_error == pytest.approx(ours.standard_error, rel=1e-4)


def test_a_loss_that_takes_the_mean_itself_works_without_weights() -> None:
    mean = make(loss=nn.CrossEntropyLoss())
    assert np.array_equal(flat(trained(mean)), flat(trained(make())))
    evaluation = mean.evaluate([trained(mean)])[0]
    assert evaluation.value == pytest.approx(make().evaluate([trained(make())])[0].value, rel=1e-5)
    assert np.isnan(evaluation.standard_error)


def test_the_value_of_a_node_is_the_users_loss_on_the_validation_rows() -> None:
    sources = make_sources(classes=0)

    def price_error(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (output.exp() - y.exp()).abs()

    trainer = make(regressor, sources, loss=price_error)
    state = trained(trainer)
    evaluation = trainer.evaluate([state])[0]
    rows = np.abs(np.exp(evaluation.predictions) - np.exp(sources.validation.y))
    assert evaluation.value == pytest.approx(rows.mean(), rel=1e-5)
    assert evaluation.standard_error == pytest.approx(rows.std(ddof=1) / np.sqrt(30), rel=1e-4)


@pytest.mark.parametrize(("output", "last"), [("logits", nn.Identity), ("probabilities", nn.Sigmoid)])
def test_two_classes_by_one_output(output: Any, last: Any) -> None:
    sources = make_sources(classes=2)
    single = make(lambda: nn.Sequential(nn.Linear(FEATURES, 1), last()), sources, output=output)
    first = single.init(0)
    weight, bias = (first.tensors[name].numpy() for name in ("0.weight", "0.bias"))
    two = make(
        lambda: nn.Sequential(nn.Linear(FEATURES, 2)),
        sources,
        init={"0.weight": np.concatenate([0 * weight, weight]), "0.bias": np.append(0 * bias, bias)},
    )
    # One logit with step size η is two with η/2 each: the difference moves by both.
    ones, twos = trained_from(single, first), trained_from(two, two.init(0), lr_scale=0.5)
    ours, theirs = single.evaluate([ones])[0], two.evaluate([twos])[0]
    assert ours.predictions.shape == (30, 2)
    assert ours.predictions == pytest.approx(theirs.predictions, abs=1e-5)
    assert ours.value == pytest.approx(theirs.value, abs=1e-5)


def trained_from(trainer: TorchTrainer, state: Any, **options: Any) -> Any:
    return trainer.train([Job(state, uniform_mixture(2), 15, 3, **options)])[0]


def test_predictions_by_a_users_function_and_for_any_rows() -> None:
    trainer = make(output=lambda output: output.softmax(1).numpy())
    state = trained(trainer)
    sources = make_sources()
    inside = make().evaluate([state])[0].predictions
    assert np.array_equal(trainer.evaluate([state])[0].predictions, inside)
    assert np.array_equal(trainer.predict(state, sources.validation.x), inside)
    assert np.array_equal(trainer.predict(state, sparse.csr_array(sources.validation.x)), inside)


def test_evaluation_is_in_evaluation_mode_and_training_is_not() -> None:
    for module in (dropping, normalised):
        trainer = make(module)
        state = trained(trainer)
        twice = [trainer.evaluate([state])[0].predictions for _ in range(2)]
        assert np.array_equal(*twice)
        by_hand = module()
        by_hand.load_state_dict(dict(state.tensors))
        with torch.no_grad():
            output = by_hand.eval()(torch.from_numpy(make_sources().validation.x)).softmax(1)
        assert twice[0] == pytest.approx(output.numpy(), abs=1e-6)
    assert trained(make(normalised)).tensors["1.num_batches_tracked"] == 20
    other = [trained(make(dropping), seed=seed) for seed in (3, 3)]
    assert np.array_equal(flat(other[0]), flat(other[1]))


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_of_torch_is_left_changed(engine: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state()
        trainer = make(dropping, engine=engine)
        trainer.evaluate([trained(trainer)])
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def drawn() -> tuple[float, ...]:
    return tuple(make_noise() for make_noise in noise.values())


@pytest.mark.parametrize("kind", noise)
@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_random_numbers_of_every_kind_come_from_the_seed(kind: str, engine: str) -> None:
    results = []
    for start in (1, 2):
        random.seed(start)
        np.random.seed(start)
        torch.manual_seed(start)
        expected = drawn()
        random.seed(start)
        np.random.seed(start)
        torch.manual_seed(start)
        trainer = make(lambda: Drawing(kind), engine=engine)
        states = [trained(trainer, seed=2**40 + seed) for seed in (3, 3, 4)]
        values = [each.value for each in trainer.evaluate([*states, states[0]])]
        assert values[3] == values[0] == trainer.evaluate(states[:1])[0].value
        assert same(trainer, states[0], states[1])
        assert not np.allclose(flat(states[0]), flat(states[2]))
        assert np.array_equal(trainer.gradients(states[0], "a"), trainer.gradients(states[0], "a"))
        predictions = [trainer.predict(states[0], make_sources().validation.x) for _ in range(2)]
        assert np.array_equal(*predictions)
        assert np.array_equal(predictions[0], trainer.evaluate(states[:1])[0].predictions)
        results.append((flat(states[0]), values, trainer.gradients(states[0], "a")))
        assert drawn() == expected  # nothing has happened outside
    for one, two in zip(*results, strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("kind", ["python", "numpy"])
def test_draws_that_a_trace_would_freeze_are_for_the_eager_loop(kind: str, caplog: Any) -> None:
    def slightly() -> nn.Module:
        module = Drawing(kind, modes=(True,))
        module.forward = lambda x: module.layer(x) + 1e-9 * noise[kind]()  # type: ignore[method-assign]
        return module

    with caplog.at_level(logging.WARNING):
        assert make(slightly, engine="vmap").engine == "eager"
    assert "it draws from Python's or numpy's random numbers" in caplog.text
    assert make(slightly, engine="auto").engine == "eager"


@pytest.mark.parametrize("kind", noise)
@pytest.mark.parametrize("engine", ENGINES)
def test_draws_in_evaluation_alone_leave_every_engine_and_repeat(kind: str, engine: str) -> None:
    trainer = make(lambda: Drawing(kind, modes=(False,)), engine=engine)
    assert trainer.engine == engine
    states = [trained(trainer, seed=seed) for seed in (3, 4)]
    together = [each.value for each in trainer.evaluate(states)]
    assert together == [trainer.evaluate([state])[0].value for state in states]


def test_a_loss_that_draws_repeats_too() -> None:
    def noisy(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        noise_of_all = [np.random.normal(), random.random(), float(torch.randn(()))]
        return nn.functional.cross_entropy(output, y, reduction="none") + sum(noise_of_all)

    trainer = make(loss=noisy)
    state = trained(trainer)
    assert len({each.value for _ in range(3) for each in trainer.evaluate([state, state])}) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_diverged_training_scores_worst(engine: str) -> None:
    trainer = make(optimizer=functools.partial(torch.optim.SGD, lr=1e12), engine=engine)
    good, bad = trainer.init(0), trained(trainer)
    values = [each.value for each in trainer.evaluate([good, bad])]
    assert np.isfinite(values[0])
    assert values[1] == np.inf
    own = make(loss=nn.CrossEntropyLoss(reduction="none"))
    assert own.evaluate([bad])[0].value == np.inf


def test_a_schedule_goes_on_from_node_to_node_unless_it_is_reset() -> None:
    for engine in ENGINES:
        trainer = make(scheduler=STEPS, engine=engine, optimizer=MOMENTUM)
        state = trained(trainer, steps=6, lr_scale=0.1)  # the job's factor is no part of the schedule
        assert state.optimizer["groups"][0]["lr"] == pytest.approx(0.025)
        state = trained_from(trainer, state)
        assert state.optimizer["groups"][0]["lr"] == pytest.approx(0.05 * 0.5**5)
        assert state.scheduler["last_epoch"] == 21
        again = make(scheduler=STEPS, engine=engine, optimizer=MOMENTUM, reset_optimizer=True)
        assert trained_from(again, state).scheduler["last_epoch"] == 15


def test_reset_forgets_the_momentum() -> None:
    for engine in ENGINES:
        keep, reset = (
            make(optimizer=MOMENTUM, engine=engine, reset_optimizer=flag) for flag in (False, True)
        )
        state = trained(keep)
        forgot = TorchTrainer.load(keep, reset.save(reset.init(0)))
        bare = type(state)(state.tensors, forgot.optimizer, None, None, state.cursor)
        assert np.array_equal(flat(trained_from(reset, state)), flat(trained_from(keep, bare)))
        assert not np.array_equal(flat(trained_from(reset, state)), flat(trained_from(keep, state)))


def test_too_little_memory_halves_the_rows_per_pass_and_changes_nothing_else(caplog: Any) -> None:
    sources = make_sources(weighted=True)
    with caplog.at_level(logging.WARNING):
        trainer = make(Greedy, sources, batch_size=20)
        state = trained(trainer)
        scarce = trainer.evaluate([state])[0]
    assert "out of memory in training with 20 rows at a time: trying 10" in caplog.text
    assert "out of memory in training with 10 rows at a time: trying 5" in caplog.text
    assert "out of memory in evaluation with 30 rows at a time: trying 15" in caplog.text

    class Rich(Greedy):
        rows = 10_000

    plenty = make(Rich, sources, batch_size=20)
    assert flat(state) == pytest.approx(flat(trained(plenty)), rel=1e-12)
    assert scarce.value == pytest.approx(plenty.evaluate([state])[0].value, rel=1e-12)
    assert same(trainer, trained(trainer), state)


def test_no_memory_for_a_single_row_is_an_error_and_other_errors_pass() -> None:
    trainer = make(Greedy)
    state = trainer.init(0)
    trainer._replica.module.rows = 0
    with pytest.raises(TrainingError, match="out of memory in training with a single row"):
        trained_from(trainer, state)

    class Broken(Greedy):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) == 10:
                raise RuntimeError("no such luck")
            return self.layer(x)

    with pytest.raises(RuntimeError, match="no such luck"):
        trained(make(Broken))


def test_pickling_fixes_the_engine_and_keeps_the_numbers() -> None:
    trainer = make(engine="auto", optimizer=ADAM, scheduler=STEPS)
    copy = pickle.loads(pickle.dumps(trainer))
    assert copy.engine == trainer.engine
    assert same(trainer, trained(copy), trained(trainer))


def test_starting_from_a_pretrained_model(tmp_path: Any) -> None:
    first = make(normalised)
    state = trained(first)
    arrays = {name: x.numpy() for name, x in state.tensors.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    for init in (
        arrays,
        tmp_path / "model.safetensors",
        str(tmp_path / "model.safetensors"),
        first.save(state),
    ):
        trainer = make(normalised, init=init)
        assert np.array_equal(flat(trainer.init(5)), flat(state))
    assert make(normalised).describe()["init"] is None
    assert len(make(normalised, init=arrays).describe()["init"]) == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"0.weight": None}, "missing: 0.weight"),
        ({"head.weight": np.zeros(3)}, "not in the module: head.weight"),
        ({"0.weight": np.zeros((2, 2))}, r"of another shape: 0.weight \(2, 2\) instead of \(8, 6\)"),
    ],
)
def test_a_pretrained_model_that_does_not_fit(change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {name: x.numpy() for name, x in mlp().state_dict().items()} | change
    with pytest.raises(InputError, match=message):
        make(init={name: x for name, x in arrays.items() if x is not None})


def test_a_checkpoint_that_is_none(tmp_path: Any) -> None:
    (tmp_path / "model.bin").write_bytes(b"no tensors")
    for name in ("model.bin", "absent.safetensors"):
        with pytest.raises(InputError, match="cannot be read as a safetensors file"):
            make(init=tmp_path / name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"module": lambda: nn.Linear(FEATURES, 5)}, r"with 3 classes the module must give \(rows, 3\)"),
        ({"module": mlp, "sources": make_sources(classes=0)}, "one number per row"),
        ({"module": lambda: nn.Linear(7, CLASSES)}, "the module fails on 3 rows of the data"),
        (
            {"module": lambda: nn.Sequential(nn.Linear(FEATURES, 2), nn.Flatten(0))},
            "must give a tensor of 3 rows",
        ),
        ({"module": lambda: nn.LSTM(FEATURES, 3)}, "it gave a tuple"),
        ({"module": mlp()}, "must be a function that builds"),
        ({"module": lambda: 3}, "it gave a int"),
        ({"module": lambda: nn.LazyLinear(3)}, "lazy layers"),
        ({"module": lambda: nn.Flatten()}, "nothing to train"),
        ({"loss": nn.CrossEntropyLoss(), "class_weight": [1, 2, 3]}, "reduction='none'"),
        ({"loss": lambda o, y: (o[:, :1] - y).square()}, r"it has shape \(3, 3\)"),
        ({"loss": nn.MSELoss(reduction="none")}, "broadcast?"),
        ({"loss": nn.BCELoss(reduction="none")}, "the loss fails on outputs"),
        ({"output": "softmax"}, "output= must be"),
        ({"output": lambda o: o[:, 0]}, r"must have shape \(3, 3\)"),
        ({"class_weight": [1, 2]}, "must be 3 finite numbers"),
        ({"sources": make_sources(classes=0), "module": regressor, "class_weight": [1]}, "needs classes"),
        ({"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau}, "ReduceLROnPlateau"),
        ({"optimizer": lambda parameters: None}, "must make a torch optimizer"),
        ({"batch_size": 0}, "at least 1"),
        ({"clip_norm": 0.0}, "clip_norm="),
        ({"amp": "int8"}, "amp="),
        ({"engine": "fast"}, "unknown engine"),
        ({"device": "abacus"}, "unknown device"),
        ({"device": "meta"}, "not available"),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size")  # torch's own warning, before our error
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_mistakes_are_told_before_any_training(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)


def test_a_factory_that_gives_the_same_module_twice() -> None:
    module = mlp()
    with pytest.raises(InputError, match="a new module at each call"):
        make(lambda: module).init(0)


def test_sparse_rows_become_dense_batches() -> None:
    dense, csr = (trained(make(sources=make_sources(form=form))) for form in (None, sparse.csr_array))
    assert np.array_equal(flat(dense), flat(csr))
    whole = make_sources(form=lambda x: np.round(x).astype(int))  # whole numbers, for a linear layer
    check_trainer(make(sources=whole), sources=2)


def test_collate_reads_any_data_set() -> None:
    sources = make_sources()
    x = torch.from_numpy(np.concatenate([part.x for part in (*sources.rows, sources.validation)]))
    ends = np.cumsum([0, 60, 40, 30])
    ids = [np.arange(a, b)[:, None] for a, b in zip(ends[:-1], ends[1:], strict=True)]
    parts = [Rows(i, part.y) for i, part in zip(ids, (*sources.rows, sources.validation), strict=True)]
    keys = Sources(sources.names, tuple(parts[:2]), parts[2], CLASSES)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return self.net(torch.cat([left, right], dim=1))

    def pair(rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return x[rows[:, 0], :2], x[rows[:, 0], 2:]

    def named(rows: np.ndarray) -> dict[str, torch.Tensor]:
        return dict(zip(("left", "right"), pair(rows), strict=True))

    plain = trained(make())
    for collate in (pair, named):
        trainer = make(Two, keys, collate=collate, engine="auto")
        assert trainer.engine == "eager"
        assert np.array_equal(flat(trained(trainer)), flat(plain))
        check_trainer(trainer, sources=2, rows=30)


def test_frozen_parameters_are_shared_by_all_states() -> None:
    for engine in ENGINES:
        trainer = make(Factored, engine=engine, optimizer=ADAMW)
        start = trainer.init(1)
        state = trained_from(trainer, start)
        assert state.tensors["frozen"] is start.tensors["frozen"]
        assert torch.equal(state.tensors["unused"], start.tensors["unused"])
        assert not torch.equal(state.tensors["u"], start.tensors["u"])


def test_gradients_are_of_the_mean_weighted_loss() -> None:
    sources = make_sources(weighted=True)
    for module in (mlp, dropping):
        trainer = make(module, sources)
        state = trained(trainer)
        whole = trainer.gradients(state, "b")
        parts = [trainer.gradients(state, 1, np.arange(a, a + 10)) for a in range(0, 40, 10)]
        assert np.mean(parts, axis=0) == pytest.approx(whole, abs=1e-6)
        by_hand = module().eval()
        by_hand.load_state_dict(dict(state.tensors))
        rows = sources.rows[1]
        losses = nn.functional.cross_entropy(
            by_hand(torch.from_numpy(rows.x)), torch.from_numpy(rows.y), reduction="none"
        )
        (losses * torch.from_numpy(rows.weight)).mean().backward()
        exact = torch.cat([each.grad.ravel() for each in by_hand.parameters()]).numpy()
        assert whole == pytest.approx(exact, abs=1e-6)
        assert trainer.gradients(state, "target").shape == whole.shape
        with pytest.raises(InputError, match="no source 3"):
            trainer.gradients(state, 3)
        with pytest.raises(InputError, match=r"positions 0 … 39"):
            trainer.gradients(state, 1, [40])


def test_merged_models_and_what_they_read() -> None:
    trainer = make(normalised)
    states = [trained(trainer, seed=seed) for seed in (1, 2)]
    mean = trainer.merge(states, [0.5, 0.5])
    assert flat(mean)[:48] == pytest.approx((flat(states[0]) + flat(states[1]))[:48] / 2, abs=1e-7)
    assert mean.tensors["1.num_batches_tracked"] == 20
    furthest = np.maximum(states[0].cursor.drawn, states[1].cursor.drawn)
    assert np.array_equal(trainer.epochs(mean), furthest / [60, 40, 30])
    with pytest.raises(InputError, match="one weight each"):
        trainer.merge([], [])


def test_merged_models_compute_the_statistics_of_batch_normalisation_again() -> None:
    trainer = make(normalised)
    states = [trained(trainer, seed=seed) for seed in (1, 2)]
    source = np.array([1.0, 0.0])
    merged, plain = (trainer.merge(states, [0.5, 0.5], each) for each in (source, None))
    first = trainer.sources.rows[0].x
    weight, bias = (plain.tensors[f"0.{name}"].double().numpy() for name in ("weight", "bias"))
    inside = np.asarray(first) @ weight.T + bias
    found = merged.tensors["1.running_mean"].numpy()
    assert found == pytest.approx(inside.mean(axis=0), abs=0.25 * inside.std())
    assert not np.allclose(found, plain.tensors["1.running_mean"].numpy(), atol=1e-4)
    assert np.array_equal(merged.tensors["0.weight"].numpy(), plain.tensors["0.weight"].numpy())


def test_settings_are_plain_data_that_tell_trainers_apart() -> None:
    one, two = make(scheduler=STEPS).describe(), make(optimizer=ADAM, class_weight=[1, 2, 3]).describe()
    assert one == json.loads(json.dumps(one))
    assert one != two
    assert make(optimizer=ADAM).lr == 0.01


def test_a_saved_state_of_another_module_is_refused() -> None:
    arrays = make().save(make().init(0))
    with pytest.raises(InputError, match="another module"):
        make(Embedded, make_sources(form=lambda x: np.abs(x * 3).astype(int) % 9)).load(arrays)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            lambda: nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES)),
            "not in the module: 4.bias, 4.weight; of another shape: 2.bias",
        ),
        (
            lambda: nn.Sequential(
                nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 9), nn.ReLU(), nn.Linear(9, CLASSES)
            ),
            r"2.weight \(8, 8\) instead of \(9, 8\).*4.weight \(3, 8\) instead of \(3, 9\)"
            ".*Load it with the module= that it was saved with",
        ),
        (lambda: mlp().to(torch.bfloat16), "0.weight float32 instead of bfloat16"),
        (lambda: nn.Sequential(*mlp(), nn.BatchNorm1d(CLASSES)), "missing: 5.bias"),
    ],
)
def test_a_saved_state_that_does_not_fit_is_refused(module: Any, message: str) -> None:
    arrays = make().save(trained(make()))
    with pytest.raises(DataError, match=message):
        make(module).load(arrays)


@pytest.mark.parametrize("engine", ["traced", "vmap"])
def test_a_warning_says_why_an_engine_cannot_train_the_module(engine: str, caplog: Any) -> None:
    class Loud(Branching):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if get_proxy_mode() is not None:  # it is being traced
                raise ValueError(f"no {'really ' * 50}\nand much more")
            return super().forward(x)

    with caplog.at_level(logging.WARNING):
        assert make(Branching, engine=engine).engine == "eager"
        assert make(Loud, engine=engine).engine == "eager"
        assert make(Counting, engine=engine).engine == "eager"
    plain, loud, counting = (record.getMessage() for record in caplog.records)
    assert plain.startswith(f"engine {engine} cannot train this module (")
    assert "): using engine eager" in plain
    assert len(plain.split("(", 1)[1]) > 40
    assert "(ValueError: no really really" in loud
    assert "much more" not in loud
    assert len(loud) < 250
    assert "% of a step): using engine eager" in counting


def test_a_schedule_stays_with_its_own_model_in_a_group() -> None:
    trainer = make(engine="vmap", scheduler=functools.partial(STEPS, step_size=100))
    start = trainer.init(0)
    older = trainer.train([Job(start, uniform_mixture(2), 3, 0)])[0]
    jobs = [Job(state, uniform_mixture(2), 4, 1) for state in (start, older, start)]
    assert [state.scheduler["last_epoch"] for state in trainer.train(jobs)] == [4, 7, 4]


def test_an_optimizer_of_some_parameters_moves_these_alone() -> None:
    def last_layer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters[-2:], lr=0.1) if len(parameters) > 1 else SGD(parameters)

    states = {engine: trained(make(engine=engine, optimizer=last_layer, clip_norm=0.1)) for engine in ENGINES}
    start = make().init(1)
    for state in states.values():
        moved = [name for name, each in state.tensors.items() if not torch.equal(each, start.tensors[name])]
        assert moved == ["4.weight", "4.bias"]
        assert flat(state) == pytest.approx(flat(states["eager"]), abs=1e-5)


def test_mixed_precision_and_own_batches_are_for_the_eager_loop() -> None:
    assert make(amp="bfloat16", engine="vmap").engine == "eager"
    assert make(collate=torch.from_numpy, engine="traced").engine == "eager"


def test_jobs_of_a_group_do_not_mix() -> None:
    trainer = make(engine="vmap", group=4)
    start = trainer.init(0)
    jobs = [Job(start, uniform_mixture(2), 6, seed) for seed in range(7)]
    for job, state in zip(jobs, trainer.train(jobs), strict=True):
        alone = trainer.train([job])[0]
        assert flat(state) == pytest.approx(flat(alone), abs=1e-6)
    assert trainer.train([]) == []
    assert trainer.evaluate([]) == []


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.sampled_from([torch.float64, torch.bfloat16, torch.int64, torch.bool]).map(
        lambda dtype: torch.tensor([[1, 0], [1, 1]], dtype=dtype)
    ),
    st.just(torch.tensor(3.0)),
)


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(leaves, lambda tree: st.lists(tree) | st.tuples(tree) | st.dictionaries(st.integers(), tree))
)
def test_what_an_optimizer_keeps_survives_saving(tree: Any) -> None:
    arrays = {name: np.array(array) for name, array in pack(tree).items()}
    assert equal(unpack(arrays, torch.device("cpu")), tree)


def equal(one: Any, two: Any) -> bool:
    if isinstance(two, torch.Tensor):
        return isinstance(one, torch.Tensor) and one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(two, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in two)
    if isinstance(two, list | tuple):
        return type(one) is type(two) and len(one) == len(two) and all(map(equal, one, two))
    return type(one) is type(two) and one == two


def test_what_cannot_be_saved_is_told() -> None:
    with pytest.raises(InputError, match="keeps a object"):
        pack({"state": object()})


def test_without_torch_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['torch'] = None\nimport mixtree.trainers.torch.trainer"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError" in done.stderr
    assert "pip install 'mixtree[torch]'" in done.stderr
