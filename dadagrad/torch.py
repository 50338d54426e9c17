"""AdaGrad in any preconditioner as an optimizer of PyTorch; needs the extra ``torch``.

>>> import torch
>>> from dadagrad.torch import AdaGrad
>>> weight = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
>>> optimizer = AdaGrad([weight], lr=1.0, preconditioner="full")
>>> for _ in range(100):
...     optimizer.zero_grad()
...     loss = weight.square().sum()
...     loss.backward()
...     optimizer.step()
>>> bool(loss < 1e-6)
True
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from dadagrad.errors import InputError, TrainingError
from dadagrad.optim.arrays import Array
from dadagrad.optim.preconditioners import PRECONDITIONERS, Preconditioner, Step
from dadagrad.optim.registry import Registry, describe
from dadagrad.optim.regularizers import REGULARIZERS, Regularizer

try:
    import torch
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "dadagrad.torch needs PyTorch, which is missing; pip install 'dadagrad[torch]'"
    ) from None


_SETTINGS = {"lr", "preconditioner", "regularizer"}


class AdaGrad(torch.optim.Optimizer):
    """Composite mirror descent in a preconditioner H of each parameter.

    With gradient g of step t and H_t made of all gradients of the parameter, up to and with g,

        w <- argmin_w  lr phi(w) + 1/2 |w - (w_t - lr H_t^-1 g)|_H^2

    (eq. 4 of Duchi, Hazan and Singer 2011; eq. 2 of Wan, Wei and Zhang 2018), which without a
    regularizer phi is w_t - lr H_t^-1 g. A parameter is one vector, in the order of its elements.

    The steps are those of `dadagrad.optim.updates.MirrorDescent`, computed with NumPy in float64 on
    the CPU, wherever the parameters are; so is the state. `state_dict` contains only tensors,
    numbers and text if preconditioner and regularizer are built in, and a resumed run has the bits
    of one that was not interrupted.

    Parameters
    ----------
    params : iterable of torch.Tensor, of (str, torch.Tensor), or of dict
        Parameters, or groups of them. A group can have each of the settings below for itself.
    lr : float
        Step size, at least 0. Schedulers may change it.
    preconditioner : Preconditioner or str
        Object or text as in `dadagrad.train`: "diagonal" is ADA-DIAG, "full" ADA-FULL,
        "sketch:rank=20,buffer=0" ADA-FD. "full" needs O(n^3) time a step for n elements, sketches
        and "radagrad" O(rank^2 n).
    regularizer : Regularizer or str, optional
        Penalty or domain of the elements of a parameter, such as "elastic-box:l1=1e-4".

    Raises
    ------
    InputError
        A setting is out of range or not known, or a parameter has complex numbers.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.01,
        preconditioner: Preconditioner | str = "diagonal",
        regularizer: Regularizer | str = "elastic-box",
    ) -> None:
        settings = {"lr": lr, "preconditioner": preconditioner, "regularizer": regularizer}
        super().__init__(params, settings)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with settings of its own."""
        super().add_param_group(param_group)
        try:
            _check_group(self.param_groups[-1])
        except (InputError, TypeError):
            del self.param_groups[-1]
            raise

    def __setstate__(self, state: dict[str, Any]) -> None:
        for group in state.get("param_groups", ()):
            if missing := _SETTINGS - group.keys():
                raise InputError(
                    f"the state has groups without {min(missing)}, so it is that of another "
                    "optimizer; give one of dadagrad.torch.AdaGrad"
                )
            _check_group(group)
        super().__setstate__(state)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move each parameter that has a gradient; return the loss of `closure`.

        Raises
        ------
        TrainingError
            A gradient is not finite. Parameters before that one have moved.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, group in enumerate(self.param_groups):
            preconditioner = PRECONDITIONERS.make(group["preconditioner"])
            regularizer = REGULARIZERS.make(group["regularizer"])
            for position, parameter in enumerate(group["params"]):
                if parameter.grad is None or not parameter.numel():
                    continue
                gradient = _column(parameter.grad)
                if not np.isfinite(gradient).all():
                    raise TrainingError(
                        f"the gradient of parameter {position} of group {number}, of shape "
                        f"{tuple(parameter.shape)}, is not finite; lower lr={group['lr']:g}, or "
                        "clip gradients"
                    )
                self._move(parameter, gradient, float(group["lr"]), preconditioner, regularizer)
        return loss

    def _move(
        self,
        parameter: Any,
        gradient: Array,
        lr: float,
        preconditioner: Preconditioner,
        regularizer: Regularizer,
    ) -> None:
        arrays = {name: tensor.numpy() for name, tensor in self.state[parameter].items()}
        arrays = preconditioner.add(arrays or preconditioner.init(len(gradient), 1), Step(gradient))
        self.state[parameter] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        weights = _column(parameter)
        moved = weights - lr * preconditioner.solve(arrays, gradient)
        if not regularizer.is_zero:
            moved = preconditioner.prox(arrays, regularizer, moved, lr, start=weights)
        parameter.copy_(torch.from_numpy(moved).view(parameter.shape).to(parameter.dtype))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; it stays in float64 whatever the type of the parameters."""
        loaded: dict[str, Any] = {}  # the state after all hooks that change it
        last = self.register_load_state_dict_pre_hook(lambda _, state: loaded.update(state))
        first = self.register_load_state_dict_post_hook(
            lambda optimizer: optimizer._restore(loaded), prepend=True
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            last.remove()
            first.remove()

    def _restore(self, loaded: dict[str, Any]) -> None:
        """Take the tensors of a state, which `torch` has rounded to the type of the parameters."""
        numbers = chain.from_iterable(group["params"] for group in loaded["param_groups"])
        parameters = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, parameter in zip(numbers, parameters, strict=True):
            if number in loaded["state"]:
                saved = loaded["state"][number].items()
                self.state[parameter] = {name: tensor.cpu().clone() for name, tensor in saved}


def _check_group(group: dict[str, Any]) -> None:
    """Raise `InputError` for wrong settings, and write those that are objects as texts."""
    if not 0.0 <= group["lr"] < float("inf"):
        raise InputError(f"lr must be a finite number of at least 0, not {group['lr']!r}")
    if any(parameter.is_complex() for parameter in group["params"]):
        raise InputError(
            "a parameter has complex numbers; give torch.view_as_real of it as the parameter"
        )
    group["preconditioner"] = _as_text(PRECONDITIONERS, group["preconditioner"])
    group["regularizer"] = _as_text(REGULARIZERS, group["regularizer"])


def _column(tensor: Any) -> Array:
    """The elements of a tensor as one column; shares memory where it can."""
    column: Array = tensor.detach().to_dense().cpu().double().reshape(-1, 1).numpy()
    return column


def _as_text(registry: Registry[Any], value: Any) -> Any:
    """The text of a built-in object, and an object of a user's class as it is."""
    made = registry.make(value)
    return describe(made) if made.name in registry else made
