"""Settings: what is taken, what is refused and how, and that nothing is lost when written down."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.algorithm import ROW_LEARNERS, UPDATE_NAMES
from dadagrad.config import TrainConfig
from dadagrad.errors import InputError
from dadagrad.losses import LOSSES
from dadagrad.updates import UPDATES

positive = st.floats(1e-300, 1e300)
settings = st.fixed_dictionaries(
    {},
    optional={
        "loss": st.sampled_from(sorted(LOSSES)),
        "huber_width": positive,
        "update": st.sampled_from(sorted(UPDATES)),
        "l1": st.floats(0, 1e300),
        "l2": st.floats(0, 1e300),
        "low": st.one_of(st.just(-math.inf), st.floats(-1e300, 0)),
        "high": st.one_of(st.just(math.inf), st.floats(0, 1e300)),
        "step_size": st.one_of(st.just("auto"), positive),
        "delta": st.floats(0, 1e300),
        "batch_size": st.one_of(st.just("auto"), st.integers(1, 2**40)),
        "passes": st.integers(1, 2**40),
        "shuffle": st.booleans(),
        "lanes": st.integers(1, 1000),
        "squares": st.sampled_from(["batch", "example"]),
        "fit_intercept": st.booleans(),
        "class_weight": st.one_of(
            st.sampled_from([None, "balanced"]),
            st.dictionaries(st.floats(-1e300, 1e300), st.floats(0, 1e300), max_size=3),
        ),
        "seed": st.integers(0, 2**63),
    },
)


@pytest.mark.parametrize(
    "others",
    [
        {"metric": "block", "blocks": (2, 3)},
        {"metric": "sketch", "rank": 7},
        {"regularizer": "group", "strength": 0.1, "blocks": 4},
        {"domain": "l1-ball", "radius": 2.0},
        {"domain": "floor-simplex", "floor": 0.01},
        {"update": "pa", "aggressiveness": 2.0, "insensitivity": 0.5},
        {"update": "arow", "confidence": 3.0},
        {"update": "strongly-convex", "strong_convexity": 0.1},
        {"step_size": "free"},
        {"average": True},
    ],
    ids=str,
)
def test_other_algorithms_survive_being_written_as_json(others):
    config = TrainConfig(**others)
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@given(settings)
def test_settings_survive_being_written_as_json(given_settings):
    config = TrainConfig(**given_settings)
    text = json.dumps(config.to_json(), allow_nan=False)
    assert TrainConfig.from_json(json.loads(text)) == config


def test_the_settings_that_are_not_given_are_the_usual_ones():
    assert TrainConfig.from_json({}) == TrainConfig()
    assert TrainConfig.from_json({"l1": 0.5}) == TrainConfig(l1=0.5)
    assert (*UPDATES, *ROW_LEARNERS) == UPDATE_NAMES


REFUSED = [
    ("loss", "hing", "loss 'hing' is not known; choose one of hinge, "),
    ("update", "adam", "update 'adam' is not known; choose one of dual-averaging, "),
    ("squares", "both", "squares 'both' is not known; choose one of batch, example"),
    ("huber_width", 0.0, "huber_width must be a finite number above 0, not 0.0"),
    ("l1", -1.0, "l1 must be a finite number of at least 0, not -1.0"),
    ("l1", math.nan, "l1 must be a finite number of at least 0, not nan"),
    ("l2", "much", "l2 must be a finite number of at least 0, not 'much'"),
    ("delta", math.inf, "delta must be a finite number of at least 0, not inf"),
    ("step_size", 0, "step_size must be a finite number above 0 or 'auto' or 'free', not 0"),
    (
        "step_size",
        "big",
        "step_size must be a finite number above 0 or 'auto' or 'free', not 'big'",
    ),
    ("step_size", None, "step_size must be a finite number above 0 or 'auto' or 'free', not None"),
    ("batch_size", 0, "batch_size must be a whole number of at least 1 or 'auto', not 0"),
    ("batch_size", 2.5, "batch_size must be a whole number of at least 1 or 'auto', not 2.5"),
    ("batch_size", True, "batch_size must be a whole number of at least 1 or 'auto', not True"),
    ("delay", -1, "delay must be a whole number of at least 0 or 'auto', not -1"),
    ("delay", "soon", "delay must be a whole number of at least 0 or 'auto', not 'soon'"),
    ("passes", 0, "passes must be a whole number of at least 1, not 0"),
    ("lanes", -3, "lanes must be a whole number of at least 1, not -3"),
    ("seed", -1, "seed must be a whole number of at least 0, not -1"),
    ("seed", 1.0, "seed must be a whole number of at least 0, not 1.0"),
    ("shuffle", "no", "shuffle must be True or False, not 'no'"),
    ("fit_intercept", 1, "fit_intercept must be True or False, not 1"),
    ("low", 0.5, r"the box \[0.5, inf\] does not contain 0"),
    ("high", -0.5, r"the box \[-inf, -0.5\] does not contain 0"),
    ("high", math.nan, "high must be a number, not nan"),
    ("low", "none", "low must be a number, not 'none'"),
    ("class_weight", "even", "class_weight must be None, 'balanced' or a mapping .* not 'even'"),
    ("class_weight", {1.0: -2}, r"class_weight\[1.0\] must be a finite number of at least 0"),
    ("class_weight", {"a": 1.0}, "class_weight names label 'a'; labels are numbers"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_what_is_refused_is_named(name, value, message):
    with pytest.raises(InputError, match=message):
        TrainConfig(**{name: value})


def test_numbers_of_numpy_are_numbers():
    config = TrainConfig(
        l1=np.float64(0.5), step_size=np.float32(0.25), batch_size=np.int64(7), seed=np.uint8(3)
    )
    assert config == TrainConfig(l1=0.5, step_size=0.25, batch_size=7, seed=3)
    assert json.loads(json.dumps(config.to_json())) == config.to_json()


def test_an_unknown_setting_is_named():
    with pytest.raises(InputError, match=r"setting 'step' is not known; the settings are .*seed"):
        TrainConfig.from_json({"step": 0.1})


@pytest.mark.parametrize("plain", [{"low": "x"}, {"low": None}, {"class_weight": [["a", 1]]}])
def test_malformed_settings_are_input_errors(plain):
    with pytest.raises(InputError, match=next(iter(plain))):
        TrainConfig.from_json(plain)


def test_a_configuration_cannot_be_changed():
    with pytest.raises(AttributeError):
        TrainConfig().l1 = 1.0  # type: ignore[misc]
