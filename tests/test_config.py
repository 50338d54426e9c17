"""Settings: permitted values, errors, and the way to JSON and back."""

import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dadagrad
from dadagrad import InputError
from dadagrad.config import SETTINGS, TrainConfig, make_config
from dadagrad.optim.losses import LOSSES, Huber
from dadagrad.optim.preconditioners import Sketch
from dadagrad.optim.updates import UPDATES

positive = st.floats(1e-300, 1e300)
settings = st.fixed_dictionaries(
    {},
    optional={
        "loss": st.one_of(st.sampled_from(tuple(LOSSES)), st.builds(Huber, positive)),
        "update": st.sampled_from([name for name in UPDATES if UPDATES[name].has_kernels]),
        "l1": st.floats(0, 1e300),
        "l2": st.floats(0, 1e300),
        "low": st.one_of(st.just(-math.inf), st.floats(-1e300, 0)),
        "high": st.one_of(st.just(math.inf), st.floats(0, 1e300)),
        "step_size": st.one_of(st.just("auto"), positive),
        "batch_size": st.one_of(st.just("auto"), st.integers(1, 2**40)),
        "passes": st.integers(1, 2**40),
        "shuffle": st.booleans(),
        "partitions_per_batch": st.integers(1, 1000),
        "accumulate": st.sampled_from(["batch", "row"]),
        "fit_intercept": st.booleans(),
        "class_weight": st.one_of(
            st.sampled_from([None, "balanced"]),
            st.dictionaries(
                st.one_of(st.floats(-1e300, 1e300), st.integers(), st.text()),
                st.floats(0, 1e300),
                max_size=3,
            ),
        ),
        "seed": st.integers(0, 2**63),
    },
)


@example({"preconditioner": "block:size=2+3"})
@example({"preconditioner": Sketch(rank=7)})
@example({"regularizer": "group:strength=0.1,size=4"})
@example({"update": "pa-1:C=2,epsilon=0.5"})
@example({"average": True})
@given(settings)
def test_json_keeps_every_setting(values):
    config = TrainConfig(**values)
    text = json.dumps(config.to_json(), allow_nan=False)
    assert TrainConfig.from_json(json.loads(text)) == config


def test_settings_that_are_missing_in_json_have_their_defaults():
    assert TrainConfig.from_json({}) == TrainConfig()
    assert TrainConfig.from_json({"l1": 0.5}) == TrainConfig(l1=0.5)


def test_single_settings_replace_those_of_a_configuration():
    config = TrainConfig(l1=0.5, passes=2)
    assert make_config(config, {"l1": 0.1}) == TrainConfig(l1=0.1, passes=2)
    assert make_config(None, {"l1": 0.1}) == TrainConfig(l1=0.1)
    for make in (lambda wrong: make_config(config, wrong), TrainConfig.from_json):
        with pytest.raises(InputError, match=r"setting 'eta' is not known; the settings .*seed"):
            make({"eta": 0.1})


def test_names_that_are_not_known_have_those_like_them(tmp_path):
    data, out = (np.eye(4), [0, 1, 0, 1]), str(tmp_path / "data")
    for use, name, nearest in (
        (partial(dadagrad.train, data, stepsize=1), "stepsize", "'step_size'"),
        (partial(dadagrad.train, data, checkpoint="x"), "checkpoint", "'checkpoints'"),
        (partial(dadagrad.train, data, lable="x"), "lable", "'label'"),
        (partial(dadagrad.sweep, data, thread=2), "thread", "'threads'"),
        (partial(dadagrad.dry_run, data, pases=2), "pases", "'passes'"),
        (partial(dadagrad.ingest, data, out, over_write=True), "over_write", "'overwrite'"),
    ):
        with pytest.raises(InputError, match=f"{name}.*did you mean {nearest}"):
            use()


def test_the_documentation_names_every_setting_with_its_help():
    documented = " ".join((TrainConfig.__doc__ or "").split())
    for name, setting in SETTINGS.items():
        assert f"{name} : " in documented
        assert " ".join(setting.help.split()) in documented


NEEDED = {
    "a finite number of at least 0": (("l1", "l2"), (-1.0, math.nan, "much")),
    "a finite number above 0 or 'auto'": (("step_size",), (0, "big", None)),
    "a whole number of at least 1 or 'auto'": (("batch_size", "rounds"), (0, 2.5, True)),
    "a whole number of at least 1 and below 100001 or 'auto'": (("streams",), (0, 2.5, 10**8)),
    "a whole number of at least 1": (("passes", "partitions_per_batch"), (0, -3, "two")),
    "a whole number of at least 0": (("seed",), (-1, 1.0)),
    "True or False": (("shuffle", "fit_intercept"), ("no", 1)),
    "a number": (("low", "high"), (math.nan, "none")),
}
REFUSED = [
    ({"loss": "hing"}, "loss 'hing' is not known; did you mean 'hinge'"),
    ({"update": "adam"}, "update 'adam' is not known; choose one of dual-averaging, "),
    ({"accumulate": "both"}, "accumulate 'both' is not known; choose one of batch, row"),
    ({"low": 0.5}, r"the box \[0.5, inf\] does not contain 0"),
    ({"high": -0.5}, r"the box \[-inf, -0.5\] does not contain 0"),
    ({"step_size": []}, "step_size must have at least one number"),
    ({"step_size": [0.1, "auto"]}, "step_size must be a finite number above 0, not 'auto'"),
    ({"l1": [0.1, -1.0]}, "l1 must be a finite number of at least 0, not -1.0"),
    ({"holdout": ([0.5] * 99, [1] * 99)}, r"not \(\[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...\], \[1, "),
    ({"class_weight": "even"}, "class_weight must be None, 'balanced' or a mapping .* 'even'"),
    ({"class_weight": {1.0: -2}}, r"class_weight\[1.0\] must be a finite number of at least 0"),
    *(
        ({name: value}, f"{name} must be {needed}, not {value!r}")
        for needed, (names, values) in NEEDED.items()
        for name in names
        for value in values
    ),
]
STREAMS = {"streams": 3, "rounds": 8}
MANY = {"step_size": [0.1, 0.2]}
NOT_TOGETHER = [
    ({"update": "pa", "preconditioner": "full"}, "does not support preconditioner='full'"),
    ({"update": "arow", "l1": 0.1}, "does not support l1=0.1"),
    ({"update": "eg", "regularizer": "l2-norm:strength=1"}, "does not support regularizer"),
    ({"update": "pa-1", "batch_size": 8}, "learns row by row"),
    ({"update": "coin-betting", "l2": 0.1}, "does not support l2"),
    ({"accumulate": "row", "preconditioner": "full"}, "accumulate 'row' is for the precond"),
    ({"accumulate": "row", "average": True, "l1": 1.0}, "accumulate 'row' is for the precond"),
    ({"regularizer": "l2-ball:radius=1", "high": 2.0}, "cannot be combined"),
    (STREAMS | {"batch_size": 8}, "each row is a step of its stream, so batch_size 8"),
    (STREAMS | {"update": "coin-betting"}, "merges the sums of each coordinate, which needs one"),
    (STREAMS | {"preconditioner": "full"}, "in the preconditioner 'diagonal' with l1"),
    (STREAMS | {"regularizer": "l2-norm:strength=1.0"}, "in the preconditioner 'diagonal' with l1"),
    (STREAMS | {"average": True, "l1": 1e-6}, "of which averaging takes only the bounds"),
    (STREAMS | {"streams": 1}, "rounds=8 is the number of merges of several streams"),
    (MANY | {"preconditioner": "full"}, "several values of step_size, l1 or l2 need one of the"),
    (MANY | {"update": "pa"}, "need one of the updates"),
    (MANY | {"average": True, "l1": [0.0, 1.0]}, "of which averaging takes only the bounds"),
]


def test_an_error_names_the_settings_and_what_is_permitted():
    for values, message in REFUSED + NOT_TOGETHER:
        with pytest.raises(InputError, match=message):
            TrainConfig(**values)


def test_numpy_numbers_become_python_numbers():
    numbers = {"l1": np.float64(0.5), "batch_size": np.int64(7), "seed": np.uint8(3)}
    config = TrainConfig(step_size=np.float32([0.25, 1]), **numbers)
    assert config == TrainConfig(l1=0.5, step_size=[0.25, 1.0], batch_size=7, seed=3)
    assert json.loads(json.dumps(config.to_json())) == config.to_json()


def test_weights_of_classes_may_be_named_by_booleans():
    config = TrainConfig(class_weight={True: 2.0, np.False_: 0.5})
    assert config.class_weight == {"true": 2.0, "false": 0.5}


@pytest.mark.parametrize("plain", [{"low": "x"}, {"low": None}, {"class_weight": [["a", 1]]}])
def test_malformed_settings_are_input_errors(plain):
    with pytest.raises(InputError, match=next(iter(plain))):
        TrainConfig.from_json(plain)
