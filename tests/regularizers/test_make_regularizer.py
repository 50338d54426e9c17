"""One regularizer from settings, and what cannot be combined."""

from __future__ import annotations

import numpy as np
import pytest

from dadagrad.errors import InputError
from dadagrad.regularizers import (
    DOMAINS,
    REGULARIZERS,
    ElasticBox,
    FloorSimplex,
    GroupL2,
    L1Ball,
    L2Ball,
    L2Norm,
    LInfinityNorm,
    MixedL2,
    MixedLInfinity,
    Simplex,
    WithElasticNet,
    make_regularizer,
)


@pytest.mark.parametrize(
    ("settings", "made"),
    [
        ({}, ElasticBox()),
        (
            {"l1": 1.0, "l2": 2.0, "low": -1.0, "high": 3.0},
            ElasticBox(1.0, 2.0, -1.0, 3.0),
        ),
        ({"regularizer": "l2-norm", "strength": 0.5}, L2Norm(0.5)),
        ({"regularizer": "l-infinity", "strength": 0.5}, LInfinityNorm(0.5)),
        ({"regularizer": "group", "strength": 0.5, "blocks": 3}, GroupL2(0.5, 3)),
        ({"regularizer": "mixed-l2", "strength": 0.5}, MixedL2(0.5)),
        ({"regularizer": "mixed-l-infinity", "strength": 0.5}, MixedLInfinity(0.5)),
        ({"domain": "l1-ball", "radius": 2.0}, L1Ball(2.0)),
        ({"domain": "l2-ball", "radius": 2.0}, L2Ball(2.0)),
        ({"domain": "simplex"}, Simplex(1.0)),
        ({"domain": "simplex", "radius": 2.0}, Simplex(2.0)),
        ({"domain": "floor-simplex", "floor": 0.01}, FloorSimplex(0.01)),
        (
            {"domain": "simplex", "l1": 1.0, "l2": 2.0},
            WithElasticNet(Simplex(1.0), 1.0, 2.0),
        ),
        (
            {"regularizer": "mixed-l2", "strength": 0.5, "l1": 0.1},
            WithElasticNet(MixedL2(0.5), 0.1, 0.0),
        ),
        ({"domain": "l1-ball", "radius": 1.0, "l2": 2.0}, WithElasticNet(L1Ball(1.0), l2=2.0)),
        ({"blocks": 4, "l1": 1.0}, ElasticBox(l1=1.0)),
    ],
)
def test_made_of_its_settings(settings, made):
    assert make_regularizer(**settings) == made


def test_every_name_makes_something():
    for name in REGULARIZERS:
        made = make_regularizer(regularizer=name, strength=0.1, blocks=2)
        assert made.prox(np.ones((4, 1)), 1.0, 1.0).shape == (4, 1)
    for name in DOMAINS:
        size = {"floor": 0.1} if name == "floor-simplex" else {"radius": 1.0}
        made = make_regularizer(domain=name, **size)
        assert made.prox(np.ones((4, 1)), 1.0, 1.0).shape == (4, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regularizer": "l3", "strength": 1.0}, "regularizer 'l3' is not known; choose one of"),
        ({"domain": "cube", "radius": 1.0}, "domain 'cube' is not known; choose one of l1-ball"),
        (
            {"regularizer": "l2-norm", "strength": 1.0, "domain": "simplex"},
            "regularizer 'l2-norm' and domain 'simplex' cannot be combined",
        ),
        (
            {"regularizer": "l2-norm", "strength": 1.0, "low": 0.0},
            r"the box \[0.0, inf\] cannot be combined with regularizer 'l2-norm'",
        ),
        (
            {"domain": "l1-ball", "radius": 1.0, "high": 2.0},
            r"the box \[-inf, 2.0\] cannot be combined with domain 'l1-ball'",
        ),
        ({"regularizer": "l2-norm"}, "'l2-norm' needs a strength; give one"),
        ({"regularizer": "group", "strength": 1.0}, "regularizer 'group' needs blocks; give"),
        ({"domain": "l1-ball"}, "domain 'l1-ball' needs a radius; give one"),
        ({"domain": "l2-ball"}, "domain 'l2-ball' needs a radius; give one"),
        ({"domain": "floor-simplex"}, "domain 'floor-simplex' needs a floor; give one"),
        ({"strength": 1.0}, "strength 1.0 is given without a regularizer; choose"),
        ({"strength": 1.0, "domain": "simplex"}, "given without a regularizer"),
        ({"radius": 1.0}, "radius 1.0 is given with domain None; only l1-ball"),
        (
            {"domain": "floor-simplex", "floor": 0.1, "radius": 2.0},
            "radius 2.0 is given with domain 'floor-simplex'",
        ),
        ({"domain": "simplex", "floor": 0.1}, "floor 0.1 is given with domain 'simplex'; only"),
        ({"l1": -1.0}, "l1 must be finite and not negative"),
        ({"l2": -1.0, "domain": "simplex"}, "l2 must be finite and not negative"),
        ({"regularizer": "l2-norm", "strength": -1.0}, "strength must be finite"),
    ],
)
def test_what_cannot_be_combined_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        make_regularizer(**settings)
