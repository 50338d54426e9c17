"""Every algorithm through the front door: it trains, finds the optimum, resumes, or says no."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from helpers.training_cases import as_dataset

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError
from dadagrad.optim.losses import LOSSES as ALL_LOSSES
from dadagrad.optim.preconditioners import PRECONDITIONERS
from dadagrad.optim.updates import UPDATES as ALL_UPDATES
from dadagrad.training import run as run_module
from dadagrad.training import warm_up
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.run import resume, train

N_ROWS, N_FEATURES = 48, 6

PENALTIES: dict[str, dict[str, object]] = {
    "none": {},
    "l1": {"l1": 0.02},
    "l2": {"l2": 0.1},
    "elastic net in a box": {"l1": 0.02, "l2": 0.05, "low": -0.3, "high": 0.2},
    "l2-norm": {"regularizer": "l2-norm:strength=0.05"},
    "l-infinity": {"regularizer": "l-infinity:strength=0.05"},
    "group": {"regularizer": "group:strength=0.05,size=3"},
    "mixed-l2": {"regularizer": "mixed-l2:strength=0.05", "l1": 0.01},
    "mixed-l-infinity": {"regularizer": "mixed-l-infinity:strength=0.05"},
    "l1-ball": {"regularizer": "l1-ball:radius=0.5"},
    "l2-ball": {"regularizer": "l2-ball:radius=0.5", "l2": 0.05},
    "simplex": {"regularizer": "simplex"},
    "floor-simplex": {"regularizer": "floor-simplex:floor=0.05"},
}
UPDATES = [name for name in ALL_UPDATES if ALL_UPDATES[name].has_kernels]
ROW_LEARNERS = [name for name in ALL_UPDATES if ALL_UPDATES[name].by_row]
PARAMETERS = {
    "block": "block:size=4", "sketch": "sketch:rank=4",
    "corrected-sketch": "corrected-sketch:rank=4",
    "radagrad": "radagrad:rank=4", "ada-lr": "ada-lr:rank=4",
    "fd-son": "fd-son:rank=4",
    "strongly-convex-simplex": "strongly-convex-simplex:floor=1e-3",
}  # fmt: skip
LOSSES = {"classes": ("logistic", "squared-hinge"), "numbers": ("squared", "huber")}


@cache
def matrix() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dense features, class labels and targets, of a problem that is not separable."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
    targets = x @ np.array([0.8, -0.4, 0.0, 0.3, 0.0, 0.1]) + 0.5 * generator.normal(size=N_ROWS)
    return x.astype(float), np.where(targets > 0, 1.0, -1.0), targets


def dataset(numbers: bool) -> Dataset:
    x, classes, targets = matrix()
    labels = targets if numbers else classes
    half = N_ROWS // 2
    indptr = np.arange(half + 1) * N_FEATURES
    indices = np.tile(np.arange(N_FEATURES), half)
    return as_dataset(
        [
            Rows.from_csr(
                indptr, indices, x[part].astype(np.float32).reshape(-1), labels[part][:, None]
            )
            for part in (slice(0, half), slice(half, N_ROWS))
        ],
        N_FEATURES,
    )


def objective(loss: str, penalty: str, weights: np.ndarray) -> float:
    """Mean loss plus phi, which a run with a batch of all rows minimises."""
    x, classes, targets = matrix()
    wanted = targets if loss in LOSSES["numbers"] else classes
    phi = TrainConfig(**PENALTIES[penalty]).penalties  # type: ignore[arg-type]
    smooth = ALL_LOSSES.make(loss).value(x @ weights, wanted).mean()
    return float(smooth + phi.value(weights[:, None]))


@cache
def optimum(loss: str, penalty: str) -> tuple[float, float]:
    """The least objective, by proximal gradient steps of constant length, and that at 0."""
    x, classes, targets = matrix()
    wanted = targets if loss in LOSSES["numbers"] else classes
    phi, compute = TrainConfig(**PENALTIES[penalty]).penalties, ALL_LOSSES.make(loss)  # type: ignore[arg-type]
    curvature = np.linalg.norm(x, 2) ** 2 / N_ROWS
    weights = np.zeros((N_FEATURES, 1))
    for _ in range(3000):
        slopes = compute.slope(x @ weights, wanted[:, None])
        center = weights - x.T @ slopes / N_ROWS / curvature
        weights = phi.prox(center, np.full_like(center, curvature), 1.0)
    start = phi.prox(np.zeros_like(weights), np.full_like(weights, curvature), 1.0)
    return objective(loss, penalty, weights[:, 0]), objective(loss, penalty, start[:, 0])


def config_of(
    update: str, preconditioner: str, penalty: str, loss: str, passes: int
) -> TrainConfig:
    adaptive = {"delta": 0.1, "step_size": 0.5}
    if preconditioner == "identity":
        adaptive = {"delta": 0.0, "step_size": 2.0}
    if preconditioner == "normalized":
        adaptive = {"delta": 1.0, "step_size": 0.3}
    if (
        preconditioner == "sketch"
    ):  # what it loses leaves directions with delta alone: constant steps
        adaptive = {"delta": 0.5, "step_size": 0.5}
    if (
        preconditioner == "fd-son"
    ):  # H grows with t: its steps are those of Newton, not of a square root
        adaptive = {"delta": 1.0, "step_size": 2.0}
    settings = PENALTIES[penalty]
    preconditioner = PARAMETERS.get(preconditioner, preconditioner).replace("size=4", "size=3")
    return TrainConfig(
        loss=loss, update=update, preconditioner=preconditioner, batch_size=N_ROWS,
        passes=passes, fit_intercept=False, **adaptive, **settings,  # type: ignore[arg-type]
    )  # fmt: skip


ALL = [*itertools.product(PRECONDITIONERS, PENALTIES, UPDATES)]


def cases() -> list[object]:
    """Every metric with every penalty, the update in turn; the rest of the product is long."""
    chosen = []
    for number, case in enumerate(ALL):
        turn, position = divmod(number, len(UPDATES))
        marks = (
            () if position == (turn + turn // len(PENALTIES)) % len(UPDATES) else pytest.mark.slow
        )
        chosen.append(pytest.param(*case, marks=marks))
    return chosen


@pytest.mark.parametrize(("preconditioner", "penalty", "update"), cases())
def test_every_composition_finds_the_optimum(preconditioner, penalty, update):
    losses = [*LOSSES["classes"], *LOSSES["numbers"]]
    loss = losses[ALL.index((preconditioner, penalty, update)) % len(losses)]
    # The random projections of ADA-LR come without a theorem, and without a promise: across its
    # directions only the regularizer moves the weights, and this one likes many that are equal.
    passes, share = (
        (12, 0.65) if (preconditioner, penalty) == ("ada-lr", "l-infinity") else (150, 0.03)
    )
    config = config_of(update, preconditioner, penalty, loss, passes=passes)
    result = train(dataset(loss in LOSSES["numbers"]), config)
    weights = np.zeros(N_FEATURES)
    weights[result.model.ids] = result.model.weights[:, 0]
    least, start = optimum(loss, penalty)
    # The model's float32 may leave a domain by its last digit.
    reached = objective(loss, penalty, np.clip(weights, config.low, config.high) * (1 - 1e-6))
    if penalty in ("simplex", "floor-simplex"):
        assert abs(weights.sum() - 1.0) < 1e-5
        assert weights.min() >= getattr(config.regularizer, "floor", 0.0) - 1e-6
        x, classes, targets = matrix()
        wanted = targets if loss in LOSSES["numbers"] else classes
        reached = float(ALL_LOSSES.make(loss).value(x @ weights, wanted).mean())
    assert reached <= least + share * (start - least) + 1e-6


@pytest.mark.parametrize("loss", [*LOSSES["classes"], *LOSSES["numbers"], "hinge", "absolute"])
@pytest.mark.parametrize("update", UPDATES)
def test_every_loss_goes_with_every_update(loss, update):
    numbers = loss in (*LOSSES["numbers"], "absolute")
    config = config_of(update, "full", "l1", loss, passes=100)
    result = train(dataset(numbers), config)
    x, classes, targets = matrix()
    weights = np.zeros(N_FEATURES)
    weights[result.model.ids] = result.model.weights[:, 0]
    value = ALL_LOSSES.make(loss).value(x @ weights, targets if numbers else classes).mean()
    assert (
        value
        < 0.8 * ALL_LOSSES.make(loss).value(0.0 * targets, targets if numbers else classes).mean()
    )


def stop_half_way(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Have the run asked to stop after some rounds."""
    seen = []
    request = Watcher.request

    def stop(watcher: Watcher):
        seen.append(1)
        if len(seen) == rounds + 1:
            from dadagrad.training.messages import StopRequested

            return StopRequested()
        return request(watcher)

    monkeypatch.setattr(Watcher, "request", stop)


RESUMED = [
    *(
        {"preconditioner": PARAMETERS.get(preconditioner, preconditioner), "batch_size": size}
        for preconditioner in PRECONDITIONERS
        for size in (1, 7)
    ),
    *({"update": PARAMETERS.get(learner, learner)} for learner in ROW_LEARNERS),
    {"update": "mirror-descent", "preconditioner": "full", "regularizer": "l1-ball:radius=0.3"},
    {"update": "ftrl", "preconditioner": "sketch", "regularizer": "l2-norm:strength=0.01"},
    {"update": "projected-gradient:radius=1", "batch_size": 7},
    {"average": True},
    {"average": True, "batch_size": 7, "update": "ftrl"},
    {"average": True, "update": "arow"},
]


@pytest.mark.parametrize("settings", RESUMED, ids=str)
def test_every_algorithm_resumes_to_the_same_bits(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(run_module, "CHUNK_ROWS", 5)
    given = {"batch_size": 1, "step_size": 0.2, "passes": 2} | settings
    if "preconditioner" in settings:
        given["delta"] = 0.1
    config = TrainConfig(**given)
    data = dataset(numbers=False)
    whole = train(data, config)
    url = str(tmp_path / "run")
    with monkeypatch.context() as patch:
        stop_half_way(patch, 6)
        stopped = train(data, config, checkpoints=url)
        assert not stopped.complete
        assert 0 < stopped.report["rows"] < whole.report["rows"]
    resumed = resume(url, data=data)
    assert resumed.complete
    assert resumed.model.digest == whole.model.digest
    assert resumed.report["progressive_loss"] == whole.report["progressive_loss"]


@pytest.mark.parametrize(
    "settings",
    [{"update": learner} for learner in ("pa-1", "arow", "eg-signed", "strongly-convex")]
    + [{"update": "coin-betting"}, {"preconditioner": "sketch", "delta": 0.1}, {"average": True}],
    ids=str,
)
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(settings):
    rows = dataset(numbers=False).read(0)
    counts = np.random.default_rng(3).integers(0, 3, rows.n_rows)
    picked = np.repeat(np.arange(rows.n_rows), counts)
    indptr = np.arange(len(picked) + 1) * N_FEATURES
    values = rows.values.reshape(-1, N_FEATURES)[picked].reshape(-1)
    repeated = Rows.from_csr(
        indptr, np.tile(np.arange(N_FEATURES), len(picked)), values, rows.labels[picked]
    )
    from dataclasses import replace

    weighted = replace(rows, weights=counts.astype(np.float32))
    config = TrainConfig(**({"batch_size": 1, "step_size": 0.2} | settings))
    models = [
        train(as_dataset([given], N_FEATURES), config).model for given in (weighted, repeated)
    ]
    assert models[0].digest == models[1].digest


@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.parametrize("update", UPDATES)
def test_averaging_changes_the_model_and_not_the_steps(update, batch_size):
    """Progressive validation is that of the weights that step, intercepts included."""
    given = {
        "update": update,
        "preconditioner": "sketch:rank=4",
        "delta": 0.1,
        "step_size": 0.3,
    }
    last, mean = (
        train(
            dataset(numbers=False),
            TrainConfig(**given, batch_size=batch_size, passes=3, average=average),
        )
        for average in (False, True)
    )
    assert mean.report["progressive_loss"] == last.report["progressive_loss"]
    assert mean.model.digest != last.model.digest


@pytest.mark.parametrize("batch_size", [1, 7])
def test_the_first_run_of_a_process_may_have_blocks_of_given_lengths(monkeypatch, batch_size):
    """Kernels are compiled on a row of two features, which no such blocks have."""
    monkeypatch.setattr(warm_up, "_warm", set())
    config = TrainConfig(preconditioner="block:size=2+4", step_size=0.3, batch_size=batch_size)
    assert train(dataset(numbers=False), config).complete


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"update": "pa", "preconditioner": "full"}, "does not support preconditioner='full'"),
        ({"update": "arow", "l1": 0.1}, "does not support l1=0.1"),
        ({"update": "eg", "regularizer": "l2-norm:strength=1"}, "does not support regularizer"),
        ({"update": "pa-1", "batch_size": 8}, "learns row by row"),
        ({"update": "coin-betting", "l2": 0.1}, "does not support l2"),
        ({"accumulate": "row", "preconditioner": "full"}, "accumulate 'row' is for the precond"),
        ({"accumulate": "row", "average": True}, "accumulate 'row' is for the preconditioner"),
        ({"regularizer": "l1-ball"}, "needs radius"),
        ({"regularizer": "l2-ball:radius=1", "high": 2.0}, "cannot be combined"),
        ({"regularizer": "group:strength=1"}, "needs size"),
        ({"preconditioner": "round"}, "preconditioner 'round' is not known"),
        ({"preconditioner": "sketch:rank=1"}, "rank"),
        ({"update": "newton"}, "update 'newton' is not known"),
    ],
    ids=str,
)
def test_what_cannot_be_combined_is_refused_with_the_reason(settings, reason):
    with pytest.raises(InputError, match=reason):
        TrainConfig(**settings)


def test_a_learner_does_not_run_on_a_cluster():

    with pytest.raises(InputError, match="row by row, which no cluster can share"):
        train(dataset(numbers=False), TrainConfig(update="pa"), workers=1)
