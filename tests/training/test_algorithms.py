"""Every algorithm through the front door: it trains, finds the optimum, resumes, or says no."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers.training_cases import dense_weights, train_until

from dadagrad import TrainConfig, dataset_from_arrays, resume, train
from dadagrad.optim.losses import LOSSES as ALL_LOSSES
from dadagrad.optim.preconditioners import PRECONDITIONERS
from dadagrad.optim.updates import UPDATES as ALL_UPDATES
from dadagrad.training import execution
from dadagrad.training.engines import warm_up

N_ROWS, N_FEATURES = 48, 6

PENALTIES = {
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


def with_delta(text, delta):
    """A preconditioner by its text, with this delta if it has one."""
    made = PRECONDITIONERS.make(text)
    return replace(made, delta=delta) if hasattr(made, "delta") else made


@cache
def matrix():
    """Dense features, class labels and targets, of a problem that is not separable."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
    targets = x @ np.array([0.8, -0.4, 0.0, 0.3, 0.0, 0.1]) + 0.5 * generator.normal(size=N_ROWS)
    return x.astype(float), np.where(targets > 0, 1.0, -1.0), targets


def dataset(numbers):
    x, classes, targets = matrix()
    data = dataset_from_arrays(x, targets if numbers else classes, partition_nnz=200)
    assert len(data.partitions) == 2
    return data


def objective(loss, penalty, weights):
    """Mean loss plus phi, which a run with a batch of all rows minimises."""
    x, classes, targets = matrix()
    wanted = targets if loss in LOSSES["numbers"] else classes
    phi = TrainConfig(**PENALTIES[penalty]).penalties
    smooth = ALL_LOSSES.make(loss).value(x @ weights, wanted).mean()
    return float(smooth + phi.value(weights[:, None]))


@cache
def optimum(loss, penalty):
    """The least objective, by proximal gradient steps of constant length, and that at 0."""
    x, classes, targets = matrix()
    wanted = targets if loss in LOSSES["numbers"] else classes
    phi, compute = TrainConfig(**PENALTIES[penalty]).penalties, ALL_LOSSES.make(loss)
    curvature = np.linalg.norm(x, 2) ** 2 / N_ROWS
    weights = np.zeros((N_FEATURES, 1))
    before = np.ones_like(weights)
    while np.abs(weights - before).max() > 1e-9:
        slopes = compute.slope(x @ weights, wanted[:, None])
        center = weights - x.T @ slopes / N_ROWS / curvature
        before, weights = weights, phi.prox(center, np.full_like(center, curvature), 1.0)
    start = phi.prox(np.zeros_like(weights), np.full_like(weights, curvature), 1.0)
    return objective(loss, penalty, weights[:, 0]), objective(loss, penalty, start[:, 0])


STEPS = {  # delta and step size of each preconditioner
    "identity": (0.0, 2.0),
    "normalized": (1.0, 0.3),
    "sketch": (0.5, 0.5),  # what it loses leaves directions with delta alone: constant steps
    "fd-son": (1.0, 2.0),  # H grows with t: its steps are those of Newton, not of a square root
}


ALL = [*itertools.product(PRECONDITIONERS, PENALTIES, UPDATES)]
TURNS = (list(PRECONDITIONERS), 1), (list(PENALTIES), 5), (UPDATES, 1)
SOME = [[names[step * n % len(names)] for names, step in TURNS] for n in range(len(PENALTIES))]
"""Each preconditioner, penalty and update at least once."""


def check_optimum(preconditioner, penalty, update):
    """Train with a composition, whose objective must be about the least."""
    losses = [*LOSSES["classes"], *LOSSES["numbers"]]
    loss = losses[ALL.index((preconditioner, penalty, update)) % len(losses)]
    # The random projections of ADA-LR come without a theorem, and without a promise: across its
    # directions only the regularizer moves the weights, and this one likes many that are equal.
    passes, share = (
        (12, 0.65) if (preconditioner, penalty) == ("ada-lr", "l-infinity") else (150, 0.03)
    )
    delta, step_size = STEPS.get(preconditioner, (0.1, 0.5))
    text = PARAMETERS.get(preconditioner, preconditioner).replace("size=4", "size=3")
    config = TrainConfig(
        loss=loss, update=update, batch_size=N_ROWS, passes=passes, fit_intercept=False,
        preconditioner=with_delta(text, delta), step_size=step_size, **PENALTIES[penalty],
    )  # fmt: skip
    model = train(dataset(loss in LOSSES["numbers"]), config).model
    weights = dense_weights(model)[:, 0].astype(float)
    least, start = optimum(loss, penalty)
    if penalty in ("simplex", "floor-simplex"):
        assert abs(weights.sum() - 1.0) < 1e-5
        assert weights.min() >= getattr(config.regularizer, "floor", 0.0) - 1e-6
        reached = objective(loss, "none", weights)
    else:  # the model's float32 may leave a domain by its last digit
        reached = objective(loss, penalty, np.clip(weights, config.low, config.high) * (1 - 1e-6))
    assert reached <= least + share * (start - least) + 1e-6


@pytest.mark.parametrize(("preconditioner", "penalty", "update"), SOME)
def test_each_preconditioner_and_penalty_finds_the_optimum(preconditioner, penalty, update):
    check_optimum(preconditioner, penalty, update)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_every_composition_finds_the_optimum(preconditioner):
    for composition in ALL:
        if composition[0] == preconditioner:
            check_optimum(*composition)


RESUMED = [
    *(
        {"preconditioner": PARAMETERS.get(preconditioner, preconditioner), "batch_size": size}
        for preconditioner in PRECONDITIONERS
        for size in ((1, 7) if preconditioner in ("full", "sketch") else (7,))
    ),
    *({"update": PARAMETERS.get(learner, learner)} for learner in ROW_LEARNERS),
    {"update": "mirror-descent", "preconditioner": "full", "regularizer": "l1-ball:radius=0.3"},
    {"update": "ftrl", "preconditioner": "sketch", "regularizer": "l2-norm:strength=0.01"},
    {"update": "projected-gradient:radius=1", "batch_size": 7},
    {"update": "strongly-convex:sigma=0.1", "batch_size": 7},
    {"average": True},
    {"average": True, "batch_size": 7, "update": "ftrl"},
    {"average": True, "l1": 0.01},
    {"average": True, "update": "arow"},
]


@pytest.mark.parametrize("settings", RESUMED, ids=str)
def test_every_algorithm_resumes_to_the_same_bits(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 5)
    given = {"batch_size": 1, "step_size": 0.2, "passes": 2} | settings
    if "preconditioner" in settings:
        given["preconditioner"] = with_delta(given["preconditioner"], 0.1)
    config, data = TrainConfig(**given), dataset(numbers=False)
    whole = train(data, config)
    url = str(tmp_path / "run")
    half_way = range(30, 48)
    train_until(lambda event: event.rows in half_way, data, config, checkpoints=url, save_every=1)
    resumed = resume(url, data=data)
    assert resumed.complete
    assert resumed.model.digest == whole.model.digest
    assert resumed.report["progressive_loss"] == whole.report["progressive_loss"]


@pytest.mark.parametrize("batch_size", [1, 7])
def test_the_first_run_of_a_process_may_have_blocks_of_given_lengths(monkeypatch, batch_size):
    """Kernels are compiled on a row of two features, which no such blocks have."""
    monkeypatch.setattr(warm_up, "_warm", set())
    config = TrainConfig(preconditioner="block:size=2+4", step_size=0.3, batch_size=batch_size)
    assert train(dataset(numbers=False), config).complete


@pytest.mark.parametrize("name", ["full", "block:size=6", "sketch", "corrected-sketch", "fd-son"])
def test_weights_of_equal_rows_stay_in_their_direction(name):
    """What rounding leaves of a gradient in other directions is not made large by H^-1."""
    row = np.arange(4, 10, dtype=np.float32) / 10
    data = dataset_from_arrays(np.tile(row, (N_ROWS, 1)), matrix()[1])
    settings = {"preconditioner": with_delta(name, 0.0), "fit_intercept": False, "batch_size": 5}
    result = train(data, loss="logistic", update="mirror-descent", step_size=0.4, **settings)
    multiples = dense_weights(result.model)[:, 0] / row
    np.testing.assert_allclose(multiples, multiples[0], rtol=1e-5)
