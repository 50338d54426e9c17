"""What a training run is: every choice that decides its bits, frozen and written down.

Where it runs (threads, workers, addresses) and how it is watched or saved is not here: none of it
changes a bit of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeGuard

from dadagrad.errors import InputError
from dadagrad.losses import LOSSES
from dadagrad.regularizers import ElasticBox
from dadagrad.updates import UPDATES

UPDATE_NAMES = tuple(UPDATES)
ClassWeight = Literal["balanced"] | Mapping[float, float] | None


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Settings of a run.

    Attributes
    ----------
    loss : str
        hinge, squared-hinge, logistic, squared, absolute or huber.
    huber_width : float
        Where the Huber loss turns from squared to linear.
    update : str
        dual-averaging, mirror-descent or ftrl.
    l1, l2 : float
        Strength of the penalties l1 |w|_1 + l2/2 |w|_2^2, per step. The intercept is free.
    low, high : float
        Box that holds every weight; it must contain 0.
    step_size : float or "auto"
        eta; "auto" tries a grid on the first few percent of the data and takes the best.
    delta : float
        Added to the diagonal of the metric.
    batch_size : int or "auto"
        Rows of one step. 1 is the online algorithm: one step per row. "auto" is 1 on this machine
        and a size that keeps the workers busy on a cluster.
    passes : int
        How often the data is walked.
    shuffle : bool
        Whether each pass takes the partitions in a new (seeded) order.
    lanes : int
        Partitions that are walked side by side when batch_size > 1; each gives rows to each step.
    squares : {"batch", "example"}
        Whether G collects the square of the batch's mean gradient or the mean of its rows'
        squares.
    fit_intercept : bool
    class_weight : None, "balanced" or {label: weight}
        Multiplies the weight of each row by that of its class.
    seed : int
    """

    loss: str = "hinge"
    huber_width: float = 1.0
    update: str = "dual-averaging"
    l1: float = 0.0
    l2: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    step_size: float | Literal["auto"] = "auto"
    delta: float = 1e-6
    batch_size: int | Literal["auto"] = "auto"
    passes: int = 1
    shuffle: bool = True
    lanes: int = 4
    squares: Literal["batch", "example"] = "batch"
    fit_intercept: bool = True
    class_weight: ClassWeight = None
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            if hasattr(given, "item") and hasattr(given, "dtype"):  # a number of NumPy
                object.__setattr__(self, field.name, given.item())
        _choice("loss", self.loss, LOSSES)
        _choice("update", self.update, UPDATE_NAMES)
        _choice("squares", self.squares, ("batch", "example"))
        _number("huber_width", self.huber_width, above=0)
        _number("l1", self.l1, least=0)
        _number("l2", self.l2, least=0)
        _number("delta", self.delta, least=0)
        if self.step_size != "auto":
            _number("step_size", self.step_size, above=0, alternative="auto")
        if self.batch_size != "auto":
            _whole("batch_size", self.batch_size, least=1, alternative="auto")
        _whole("passes", self.passes, least=1)
        _whole("lanes", self.lanes, least=1)
        _whole("seed", self.seed, least=0)
        for name in ("shuffle", "fit_intercept"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, not {getattr(self, name)!r}")
        for name in ("low", "high"):
            bound = getattr(self, name)
            if not _is_number(bound) or math.isnan(bound):
                raise InputError(f"{name} must be a number, not {bound!r}")
        ElasticBox(low=self.low, high=self.high)  # refuses a box without 0
        if isinstance(self.class_weight, Mapping):
            for label, weight in self.class_weight.items():
                if not _is_number(label):
                    raise InputError(f"class_weight names label {label!r}; labels are numbers here")
                _number(f"class_weight[{label}]", weight, least=0)
        elif self.class_weight not in (None, "balanced"):
            raise InputError(
                f"class_weight must be None, 'balanced' or a mapping of labels to weights, not "
                f"{self.class_weight!r}"
            )

    def to_json(self) -> dict[str, Any]:
        """The settings as plain JSON types; infinities as text."""
        plain = asdict(self)
        plain["low"], plain["high"] = str(self.low), str(self.high)
        if isinstance(self.class_weight, Mapping):
            plain["class_weight"] = [[key, value] for key, value in self.class_weight.items()]
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> TrainConfig:
        """The inverse of `to_json`; `InputError` names a setting that is not known."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(plain) - known)
        if unknown:
            raise InputError(
                f"setting {unknown[0]!r} is not known; the settings are {', '.join(sorted(known))}"
            )
        settings = dict(plain)
        for bound in ("low", "high"):
            if isinstance(settings.get(bound), str):
                settings[bound] = _parsed(bound, settings[bound])
        if isinstance(settings.get("class_weight"), list):
            settings["class_weight"] = {
                _parsed("class_weight", key): value for key, value in settings["class_weight"]
            }
        return cls(**settings)


def _choice(name: str, given: object, allowed: Mapping[str, Any] | tuple[str, ...]) -> None:
    if not isinstance(given, str) or given not in allowed:
        raise InputError(f"{name} {given!r} is not known; choose one of {', '.join(allowed)}")


def _number(
    name: str,
    given: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    alternative: str | None = None,
) -> None:
    if _is_number(given) and math.isfinite(given) and given >= least and given > above:
        return
    bound = f" of at least {least:g}" if least > -math.inf else f" above {above:g}"
    other = f" or {alternative!r}" if alternative else ""
    raise InputError(f"{name} must be a finite number{bound}{other}, not {given!r}")


def _parsed(name: str, given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, not {given!r}") from None


def _is_number(given: object) -> TypeGuard[float]:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _whole(name: str, given: object, *, least: int, alternative: str | None = None) -> None:
    if isinstance(given, int) and not isinstance(given, bool) and given >= least:
        return
    other = f" or {alternative!r}" if alternative else ""
    raise InputError(f"{name} must be a whole number of at least {least}{other}, not {given!r}")
