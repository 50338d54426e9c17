"""What a training run is: every choice that decides its bits, frozen and written down.

Where it runs (threads, workers, addresses) and how it is watched or saved is not here: none of it
changes a bit of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeGuard

from dadagrad.algorithm import UPDATE_NAMES, check_algorithm, check_exchange
from dadagrad.errors import InputError
from dadagrad.losses import LOSSES

Blocks = int | tuple[int, ...] | None
ClassWeight = Literal["balanced"] | Mapping[float, float] | None


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Settings of a run.

    Attributes
    ----------
    loss : str
        hinge, squared-hinge, logistic; squared, absolute, huber, quantile, poisson;
        multiclass-hinge, softmax; ranking.
    huber_width : float
        Where the Huber loss turns from squared to linear.
    quantile : float
        What the quantile loss predicts: the value that a share `quantile` of targets is below.
    update : str
        dual-averaging, mirror-descent or ftrl; or a learner that goes row by row: pa, pa-1, pa-2,
        arow, arow-full, eg, eg-signed, strongly-convex or strongly-convex-simplex.
    metric : str
        diagonal, identity, normalized, full, block, sketch, corrected-sketch, radagrad, ada-lr or
        fd-son. With any but the diagonal one, training runs the plain forms in NumPy.
    rank : int
        Directions of a sketch or a random projection.
    blocks : int, tuple of int or None
        Features in each block, for the metric "block" and the regularizer "group".
    l1, l2 : float
        Strength of the penalties l1 |w|_1 + l2/2 |w|_2^2, per step. The intercept is free.
    low, high : float
        Box that holds every weight; it must contain 0.
    regularizer, strength : str and float, or None
        strength times l2-norm, l-infinity, group, mixed-l2 or mixed-l-infinity; besides l1 and l2.
    domain : str or None
        What holds the weights of each output: l1-ball, l2-ball, simplex or floor-simplex.
    radius, floor : float or None
        Of the domain; of eg and strongly-convex.
    step_size : float, "auto" or "free"
        eta; "auto" tries a grid on the first few percent of the data and takes the best. "free"
        has none: each weight bets on its gradients, with a regret bound that no setting enters.
    delta : float
        Added to the diagonal of the metric.
    batch_size : int or "auto"
        Rows of one step. 1 is the online algorithm: one step per row. "auto" is 1 on this machine
        and a size that keeps the workers busy on a cluster; with local steps it is 1.
    passes : int
        How often the data is walked.
    shuffle : bool
        Whether each pass takes the partitions in a new (seeded) order.
    lanes : int
        Partitions that are walked side by side when batch_size > 1; each gives rows to each step.
    delay : int or "auto"
        With k, the gradient of a step is taken at the weights of k steps before: so many batches
        are worked on while earlier ones travel or make their steps. For batch_size > 1. Compiled
        updates take shorter steps where such gradients agree (`GradientSums.delayed`). "auto" is 1
        for those on a cluster if batch_size is "auto" too, else 0.
    exchange : {"gradients", "local-steps"}
        What workers give each other. With "gradients" each step takes the gradient of a batch of
        rows, exactly. With "local-steps" several streams walk rows of their own, one step per
        row, and are merged now and then: far fewer messages, another model.
    streams : int
        Of local steps; as many workers can be busy. Decides the model, as `rounds` does.
    rounds : int
        How often the streams are merged in the first pass; in later ones it is less often.
    squares : {"batch", "example"}
        Whether G collects the square of the batch's mean gradient or the mean of its rows'
        squares.
    fit_intercept : bool
    average : bool
        Whether the model is the mean of the weights that the steps met, instead of the last.
    aggressiveness : float
        C of pa-1 and pa-2.
    insensitivity : float
        epsilon of pa, pa-1 and pa-2 in a regression.
    confidence : float
        r of arow and arow-full: the larger, the slower.
    strong_convexity : float
        sigma of strongly-convex and strongly-convex-simplex.
    class_weight : None, "balanced" or {label: weight}
        Multiplies the weight of each row by that of its class.
    seed : int
    """

    loss: str = "hinge"
    huber_width: float = 1.0
    quantile: float = 0.5
    update: str = "dual-averaging"
    metric: str = "diagonal"
    rank: int = 10
    blocks: Blocks = None
    l1: float = 0.0
    l2: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    regularizer: str | None = None
    strength: float | None = None
    domain: str | None = None
    radius: float | None = None
    floor: float | None = None
    step_size: float | Literal["auto", "free"] = "auto"
    delta: float = 1e-6
    batch_size: int | Literal["auto"] = "auto"
    passes: int = 1
    shuffle: bool = True
    lanes: int = 4
    delay: int | Literal["auto"] = "auto"
    exchange: Literal["gradients", "local-steps"] = "gradients"
    streams: int = 16
    rounds: int = 40
    squares: Literal["batch", "example"] = "batch"
    fit_intercept: bool = True
    average: bool = False
    aggressiveness: float = 1.0
    insensitivity: float = 0.1
    confidence: float = 1.0
    strong_convexity: float = 1e-4
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
        _number("quantile", self.quantile, above=0)
        if self.quantile >= 1:
            raise InputError(f"quantile must be below 1, not {self.quantile!r}")
        _number("l1", self.l1, least=0)
        _number("l2", self.l2, least=0)
        _number("delta", self.delta, least=0)
        for name in ("strength", "radius", "floor"):
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), least=0)
        for name in ("aggressiveness", "confidence", "strong_convexity"):
            _number(name, getattr(self, name), above=0)
        _number("insensitivity", self.insensitivity, least=0)
        _whole("rank", self.rank, least=1)
        if self.blocks is not None and not isinstance(self.blocks, int):
            object.__setattr__(self, "blocks", tuple(self.blocks))  # a list, as JSON has it
        if self.step_size not in ("auto", "free"):
            _number("step_size", self.step_size, above=0, alternatives=("auto", "free"))
        if self.batch_size != "auto":
            _whole("batch_size", self.batch_size, least=1, alternatives=("auto",))
        _whole("passes", self.passes, least=1)
        _whole("lanes", self.lanes, least=1)
        if self.delay != "auto":
            _whole("delay", self.delay, least=0, alternatives=("auto",))
        elif self.batch_size != "auto":
            object.__setattr__(self, "delay", 0)
        _choice("exchange", self.exchange, ("gradients", "local-steps"))
        _whole("streams", self.streams, least=1)
        _whole("rounds", self.rounds, least=1)
        _whole("seed", self.seed, least=0)
        for name in ("shuffle", "fit_intercept", "average"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, not {getattr(self, name)!r}")
        for name in ("low", "high"):
            bound = getattr(self, name)
            if not _is_number(bound) or math.isnan(bound):
                raise InputError(f"{name} must be a number, not {bound!r}")
        check_algorithm(self)
        check_exchange(self)
        if self.delay and self.batch_size == 1:
            raise InputError(
                f"delay={self.delay} needs a batch_size above 1: with one row a step, each waits "
                "for the one before, and nothing is under way meanwhile; leave out delay, or "
                "choose a batch_size"
            )
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
    alternatives: tuple[str, ...] = (),
) -> None:
    if _is_number(given) and math.isfinite(given) and given >= least and given > above:
        return
    bound = f" of at least {least:g}" if least > -math.inf else f" above {above:g}"
    other = "".join(f" or {word!r}" for word in alternatives)
    raise InputError(f"{name} must be a finite number{bound}{other}, not {given!r}")


def _parsed(name: str, given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, not {given!r}") from None


def _is_number(given: object) -> TypeGuard[float]:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _whole(name: str, given: object, *, least: int, alternatives: tuple[str, ...] = ()) -> None:
    if isinstance(given, int) and not isinstance(given, bool) and given >= least:
        return
    other = "".join(f" or {word!r}" for word in alternatives)
    raise InputError(f"{name} must be a whole number of at least {least}{other}, not {given!r}")
