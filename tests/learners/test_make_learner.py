"""Learners by name: what each is given, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dadagrad.errors import InputError
from dadagrad.learners import (
    LEARNERS,
    Arow,
    ArowFull,
    CoinBetting,
    ExponentiatedGradient,
    PassiveAggressive,
    StronglyConvexBall,
    StronglyConvexSimplex,
    make_learner,
)
from dadagrad.losses import LOSSES, make_loss

HINGE, LOGISTIC = make_loss("hinge"), make_loss("logistic")
SETTINGS = {
    "aggressiveness": 3.0,
    "epsilon": 0.2,
    "r": 4.0,
    "step_size": 5.0,
    "radius": 6.0,
    "sigma": 7.0,
    "floor": 0.01,
    "wealth": 8.0,
    "leash": 9.0,
}
EXPECTED = {
    "pa": PassiveAggressive("pa", "binary", 3.0, 0.2),
    "pa-1": PassiveAggressive("pa-1", "binary", 3.0, 0.2),
    "pa-2": PassiveAggressive("pa-2", "binary", 3.0, 0.2),
    "arow": Arow(4.0),
    "arow-full": ArowFull(4.0),
    "eg": ExponentiatedGradient(HINGE, 5.0, 6.0),
    "eg-signed": ExponentiatedGradient(HINGE, 5.0, 6.0, signed=True),
    "strongly-convex": StronglyConvexBall(HINGE, 7.0, 6.0),
    "strongly-convex-simplex": StronglyConvexSimplex(HINGE, 7.0, 0.01, 6.0),
    "coin": CoinBetting(HINGE, 8.0, 9.0),
}


def test_every_name_has_a_learner():
    assert set(EXPECTED) == set(LEARNERS)


@pytest.mark.parametrize("name", LEARNERS)
def test_settings_reach_the_learner_they_belong_to(name):
    assert make_learner(name, HINGE, **SETTINGS) == EXPECTED[name]


def test_none_is_the_radius_that_each_learner_means():
    assert make_learner("eg", LOGISTIC).radius == 1.0
    assert make_learner("strongly-convex", HINGE, sigma=0.01).ball(1) == pytest.approx(10.0)


def test_the_loss_decides_what_passive_aggressive_learning_is():
    for loss, task in (("multiclass-hinge", "multiclass"), ("absolute", "regression")):
        learner = make_learner("pa-2", make_loss(loss), epsilon=0.0)
        assert learner == PassiveAggressive("pa-2", task, epsilon=0.0)
    assert make_learner("pa-1", make_loss("ranking")) == PassiveAggressive("pa-1", "binary")


@pytest.mark.parametrize("name", ["pa", "pa-1", "pa-2", "arow", "arow-full"])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "softmax"])
def test_losses_that_a_learner_cannot_follow_are_refused(name, loss):
    said = f"^{name} follows a loss of its own and cannot follow '{loss}'; choose one of hinge, "
    with pytest.raises(InputError, match=said):
        make_learner(name, make_loss(loss))


@pytest.mark.parametrize("loss", ["absolute", "multiclass-hinge"])
def test_arow_asks_for_signs(loss):
    with pytest.raises(InputError, match="of hinge, squared-hinge, ranking, or another learner"):
        make_learner("arow", make_loss(loss))


@pytest.mark.parametrize("name", ["eg", "eg-signed", "strongly-convex-simplex", "coin"])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_the_others_take_the_slope_of_any_loss(name, loss):
    learner = make_learner(name, make_loss(loss))
    state = learner.init(3, 2)
    ids, values = np.array([0, 2]), np.array([1.0, -2.0])
    margins = learner.margins(state, ids, values)
    state = learner.learn(state, ids, values, np.array([1.0, -1.0]), margins)
    assert np.isfinite(learner.weights(state)).all()


def test_unknown_names_list_the_choices():
    with pytest.raises(InputError, match="learner 'perceptron' is not known; choose one of pa, "):
        make_learner("perceptron", HINGE)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("pa-1", "aggressiveness"),
        ("arow", "r"),
        ("eg", "step_size"),
        ("eg", "radius"),
        ("strongly-convex", "sigma"),
        ("strongly-convex-simplex", "floor"),
        ("coin", "wealth"),
        ("coin", "leash"),
    ],
)
@pytest.mark.parametrize("bad", [0, -1.0, np.nan, True, "much"])
def test_bad_settings_are_named(name, setting, bad):
    with pytest.raises(InputError, match=f"^{setting} must be a finite number above 0, not"):
        make_learner(name, HINGE, **{setting: bad})


def test_importing_learners_loads_nothing_heavy():
    program = (
        "import sys, dadagrad.learners; "
        "assert not {'numba', 'scipy', 'dask', 'sklearn', 'zarr'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
