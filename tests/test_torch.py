"""AdaGrad for PyTorch: the steps of the package, with a state that resumes to the same bits."""

import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import InputError, TrainingError
from dadagrad.optim.preconditioners import PRECONDITIONERS, Diagonal
from dadagrad.optim.regularizers import REGULARIZERS
from dadagrad.optim.updates import MirrorDescent

torch = pytest.importorskip("torch", reason="PyTorch, of the extra torch, takes gigabytes")

from dadagrad.torch import AdaGrad  # noqa: E402

NAMES = [
    "diagonal:delta=0.5", "full:delta=0.5", "block:size=5,delta=0.5", "identity", "global",
    "sketch:rank=3,buffer=0,delta=0.5", "corrected-sketch:delta=0.5", "fd-son:rank=3,delta=0.5",
    "radagrad:rank=4,seed=2,delta=0.5", "ada-lr:rank=4", "normalized:delta=0.5",
]  # fmt: skip


def make_parameter(shape=(3, 4), dtype=torch.float64, seed=0):
    values = np.random.default_rng(seed).normal(size=shape)
    return torch.nn.Parameter(torch.tensor(values, dtype=dtype))


def descend(optimizer, parameters, steps):
    """Steps on sums of fourth powers around different points."""
    for t in steps:
        optimizer.zero_grad()
        sum(((each - math.sin(t)) ** 4).sum() for each in parameters).backward()
        optimizer.step()


@given(
    preconditioner=st.sampled_from(NAMES),
    regularizer=st.sampled_from(["elastic-box", "elastic-box:l1=0.1"]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 100),
)
def test_steps_are_those_of_mirror_descent(preconditioner, regularizer, dtype, seed):
    rng = np.random.default_rng(seed)
    parameter = make_parameter(dtype=dtype, seed=seed)
    update = MirrorDescent(
        0.3, PRECONDITIONERS.make(preconditioner), REGULARIZERS.make(regularizer)
    )
    start = parameter.detach().numpy().astype(float).reshape(-1, 1)
    state = update.init(parameter.numel(), 1).with_arrays(
        update.init(parameter.numel(), 1).arrays | {"primary": start}, 0.0
    )
    optimizer = AdaGrad([parameter], 0.3, preconditioner, regularizer)
    for _ in range(6):
        parameter.grad = torch.tensor(rng.normal(size=parameter.shape), dtype=dtype)
        state = update.step(state, parameter.grad.numpy().astype(float).reshape(-1, 1))
        optimizer.step()
    tolerance = 1e-6 if dtype == torch.float64 else 1e-4
    expected = update.weights(state).reshape(parameter.shape)
    np.testing.assert_allclose(parameter.detach().numpy(), expected, tolerance, tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_has_the_same_bits(name):
    """The state is saved as PyTorch reads it without unpickling objects."""

    def begin():
        parameters = [make_parameter(dtype=torch.float32), make_parameter((5,), torch.float32, 1)]
        return parameters, AdaGrad(parameters, 0.1, name)

    whole, optimizer = begin()
    descend(optimizer, whole, range(12))
    halves, optimizer = begin()
    descend(optimizer, halves, range(6))
    file = io.BytesIO()
    torch.save((halves, optimizer.state_dict()), file)
    file.seek(0)
    halves, saved = torch.load(file, weights_only=True)
    resumed = AdaGrad(halves)
    resumed.load_state_dict(saved)
    descend(resumed, halves, range(6, 12))
    assert all(torch.equal(*pair) for pair in zip(whole, halves, strict=True))


def test_hooks_change_the_state_that_is_loaded():
    parameter = make_parameter(dtype=torch.float32)
    optimizer = AdaGrad([parameter])
    descend(optimizer, [parameter], range(3))
    saved, seen = optimizer.state_dict(), []
    doubled = saved | {"state": {0: {"squares": 2.0 * saved["state"][0]["squares"]}}}
    optimizer.register_load_state_dict_pre_hook(lambda _, state: doubled)
    optimizer.register_load_state_dict_post_hook(lambda each: seen.append(each.state[parameter]))
    optimizer.load_state_dict(saved)
    assert torch.equal(seen[0]["squares"], doubled["state"][0]["squares"])
    assert seen[0]["squares"].dtype == torch.float64


def test_the_state_of_another_optimizer_is_refused():
    parameter = make_parameter()
    with pytest.raises(InputError, match=r"groups without preconditioner.* of another optimizer"):
        AdaGrad([parameter]).load_state_dict(torch.optim.Adagrad([parameter]).state_dict())


def test_a_state_with_wrong_settings_is_refused():
    optimizer = AdaGrad([make_parameter()])
    saved = optimizer.state_dict()
    saved["param_groups"][0]["lr"] = -1.0
    with pytest.raises(InputError, match="lr must be a finite number"):
        optimizer.load_state_dict(saved)


@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"lr": "0.1"}, {"preconditioner": "fulll"}])
def test_a_group_that_is_refused_is_not_trained(wrong):
    optimizer = AdaGrad([make_parameter()])
    with pytest.raises((InputError, TypeError)):
        optimizer.add_param_group({"params": [make_parameter()], **wrong})
    assert len(optimizer.param_groups) == 1


def test_a_parameter_without_elements_stays_as_it_is():
    nothing, some = make_parameter((0, 3)), make_parameter()
    optimizer = AdaGrad([nothing, some], preconditioner="full")
    descend(optimizer, [nothing, some], range(2))
    assert not torch.equal(some, make_parameter())


def test_groups_have_preconditioners_of_their_own():
    first, second = make_parameter(), make_parameter()
    optimizer = AdaGrad(
        [{"params": [first], "preconditioner": "sketch:rank=3"}, {"params": [second], "lr": 0.0}],
        lr=0.5,
        preconditioner=Diagonal(delta=0.1),
    )
    descend(optimizer, [first, second], range(3))
    assert {"directions", "gram"} <= set(optimizer.state[first])
    assert set(optimizer.state[second]) == {"squares"}
    assert optimizer.param_groups[1]["preconditioner"] == "diagonal:delta=0.1"
    assert not torch.equal(first, make_parameter())
    assert torch.equal(second, make_parameter())


def test_correlated_features_need_more_than_a_diagonal():
    """A quadratic with the eigenvalues 1 to 0.001 in random directions."""
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20))).Q
    curvature = torch.tensor(directions * 10.0 ** -np.linspace(0, 3, 20) @ directions.T)
    losses = {}
    for name in ("diagonal", "full", "corrected-sketch"):
        weight = torch.nn.Parameter(torch.tensor(directions.sum(axis=1)))
        optimizer = AdaGrad([weight], 1.0, name)

        def closure(weight=weight, optimizer=optimizer):
            optimizer.zero_grad()
            loss = 0.5 * weight @ curvature @ weight
            loss.backward()
            return loss

        for _ in range(100):
            losses[name] = optimizer.step(closure).item()
    assert losses["full"] < losses["corrected-sketch"] < losses["diagonal"] / 1000 < 1e-5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -1.0}, "lr must be a finite number of at least 0, not -1.0"),
        (
            {"preconditioner": "sketchy"},
            "preconditioner 'sketchy' is not known; did you mean 'sketch'",
        ),
        ({"regularizer": "l1-ball"}, "regularizer 'l1-ball' needs radius"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        AdaGrad([make_parameter()], **settings)


def test_a_gradient_that_is_not_finite_ends_training():
    parameter = make_parameter()
    parameter.grad = torch.full((3, 4), torch.nan, dtype=torch.float64)
    with pytest.raises(TrainingError, match=r"parameter 0 of group 0, of shape \(3, 4\)"):
        AdaGrad([parameter]).step()


def test_the_snippet_of_the_guide_trains():
    page = Path(__file__).parents[1] / "docs" / "guides" / "algorithms.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    (snippet,) = (each for each in blocks if "import torch" in each)
    names = {}
    exec(compile(snippet, page, "exec"), names)
    network, optimizer = names["network"], names["optimizer"]
    before = [each.detach().clone() for each in network.parameters()]
    images = torch.rand((4, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    torch.nn.functional.cross_entropy(network(images), torch.arange(4)).backward()
    optimizer.step()
    moved = [(new != old).any() for new, old in zip(network.parameters(), before, strict=True)]
    assert all(moved)
