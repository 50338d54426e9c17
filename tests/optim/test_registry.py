"""Names of losses, regularizers, preconditioners and updates, and their form as text."""

import math
import re
from dataclasses import fields, replace

import pytest
from helpers.objects import TEXTS, example
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import InputError, Loss, Preconditioner, Regularizer, Update
from dadagrad.config import SETTINGS, TrainConfig
from dadagrad.optim.calibration import Platt
from dadagrad.optim.losses import LOSSES, Hinge, Huber
from dadagrad.optim.preconditioners import PRECONDITIONERS, Block, Sketch
from dadagrad.optim.registry import describe
from dadagrad.optim.regularizers import REGULARIZERS, GroupL2
from dadagrad.optim.updates import UPDATES

REGISTRIES = [LOSSES, REGULARIZERS, PRECONDITIONERS, UPDATES]
BAD = {
    "Positive": (0.0, -1.0, math.nan, math.inf, True, "1"),
    "NonNegative": (-0.1, math.nan, math.inf, True, "1"),
    "Count": (-1, 0.5, True, "many"),
    "Rank": (1, 0, 2.5, True),
    "Sizes": (0, 1.5, (), (2, 0), True),
}


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_built_in_object_is_made_by_name_and_described_by_it(registry):
    for name in registry:
        made = example(registry, name)
        assert isinstance(made, registry.base)
        assert describe(made) == TEXTS.get(name, name)
        assert registry.make(made) is made
        assert hash(made) == hash(example(registry, name))


def test_every_parameter_is_checked():
    checked = set()
    for registry in REGISTRIES:
        for name in registry:
            made = example(registry, name)
            for each in fields(made):
                for bad in BAD.get(each.type.removesuffix(" | None"), ()):
                    message = f"{each.name} of {name} must be a .* not {re.escape(repr(bad))}"
                    with pytest.raises(InputError, match=message):
                        replace(made, **{each.name: bad})
                    checked.add((name, each.name))
    assert len(checked) > 40
    unchecked = {"schedule", "seed", "low", "high", "loss", "preconditioner", "regularizer"}
    names = {
        each.name for registry in REGISTRIES for name in registry for each in fields(registry[name])
    }
    assert names - {field for _, field in checked} == unchecked


@given(
    value=st.one_of(
        st.builds(Huber, st.floats(1e-300, 1e300)),
        st.builds(Sketch, st.floats(0, 1e300), st.integers(2, 10**9)),
        st.builds(Block, st.lists(st.integers(1, 99), min_size=2).map(tuple)),
        st.builds(GroupL2, st.floats(0, 1e300), st.integers(1, 10**9)),
    )
)
def test_text_keeps_every_digit_of_the_parameters(value):
    registry = next(each for each in REGISTRIES if isinstance(value, each.base))
    assert registry.make(describe(value)) == value


def test_refused_text_is_told_from_what_was_needed():
    for registry, text, message in (
        (LOSSES, "hinged", "loss 'hinged' is not known; did you mean 'hinge'"),
        (LOSSES, "hinge:width=2", "loss 'hinge' has no parameter 'width'; its parameters: none"),
        (LOSSES, "huber:width=wide", "width of huber must be a finite number above 0, not 'wide'"),
        (LOSSES, "quantile:q=1", "q of quantile must be below 1, not 1.0"),
        (LOSSES, 3, "loss must be a name or an object of a class derived from dadagrad.Loss"),
        (REGULARIZERS, "l1-ball", "'l1-ball' needs radius; write l1-ball:radius=VALUE"),
        (
            REGULARIZERS,
            "group:strength=1,size=2+",
            "size of group must be a whole number of at least 1",
        ),
        (
            PRECONDITIONERS,
            "sketch:rank=1.5",
            "rank of sketch must be a whole number of at least 2, not '1.5'",
        ),
        (UPDATES, "pa-1:aggressiveness=1", "no parameter 'aggressiveness'; its .*: epsilon, C"),
        (UPDATES, "ftrl:step_size=1", "has no parameter 'step_size'; its parameters: none"),
    ):
        with pytest.raises(InputError, match=message):
            registry.make(text)


class Plain(Loss):
    """A user's own loss of a plain class."""

    def __init__(self, width):
        self.width = width

    def value(self, scores, labels):
        return self.width * abs(scores - labels)

    def slope(self, scores, labels):
        return self.width * (scores > labels)


def test_an_own_object_is_described_and_never_made_from_text():
    config = TrainConfig(loss=Plain(0.5))
    assert config.to_json()["loss"] == "Plain:width=0.5"
    with pytest.raises(InputError, match="loss 'Plain' is not known"):
        TrainConfig.from_json(config.to_json())
    assert TrainConfig.from_json(config.to_json(), {"loss": config.loss}) == config
    with pytest.raises(InputError, match=r"'Plain:width=0.25' was given, and the run has loss"):
        TrainConfig.from_json(config.to_json(), {"loss": Plain(0.25)})


def test_the_name_of_a_built_in_object_is_not_for_others():
    class Hinges(Hinge):
        name = "hinge"

    with pytest.raises(InputError, match="Hinges has the name 'hinge' of a built-in loss"):
        LOSSES.make(Hinges())


def test_a_calibration_of_an_own_class_is_refused_at_once():
    class Twice(Platt):
        name = "twice"

    for wrong in (Twice(), "twice", 3):
        with pytest.raises(
            InputError, match=r"calibration .* one of platt, isotonic, none(, not|$)"
        ):
            TrainConfig(calibration=wrong)


def test_an_object_and_its_text_are_the_same_setting():
    assert TrainConfig(loss=Huber(0.5)) == TrainConfig(loss="huber:width=0.5")
    assert {each.base for each in REGISTRIES} == {Loss, Preconditioner, Regularizer, Update}
    assert SETTINGS["loss"].default == "hinge"
