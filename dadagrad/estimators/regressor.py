"""`AdaGradRegressor`."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags, check_array

from dadagrad.data.dataset import LabelColumn
from dadagrad.errors import InputError
from dadagrad.estimators.base import LinearEstimator
from dadagrad.losses import check_targets, make_loss


class AdaGradRegressor(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Linear regression trained by AdaGrad.

    A y of several columns is one linear model each, trained side by side in the same passes over
    the data.

    Parameters
    ----------
    loss : {"squared", "absolute", "huber", "quantile", "poisson"}, default="squared"
        "absolute" predicts medians, "quantile" any quantile. "poisson" is for counts and other y
        of at least 0: the logarithm of their mean is linear.
    huber_width : float, default=1.0
        Where the Huber loss turns from squared to linear.
    quantile : float, default=0.5
        The share of y that lies below what loss="quantile" predicts.
    update, l1, l2, low, high, step_size, delta, batch_size, passes, shuffle, squares, \
fit_intercept, lanes, metric, rank, blocks, regularizer, strength, domain, radius, floor, average, \
aggressiveness, insensitivity, confidence, strong_convexity, delay, exchange, streams, rounds, \
random_state, threads, checkpoints
        As in `AdaGradClassifier`.

    Attributes
    ----------
    coef_ : (n_features,) or (n_targets, n_features) float64
        One dimension where y has one. Made when first asked for.
    intercept_ : (n_targets,) float64
    n_features_in_, feature_names_in_, n_iter_, t_, model_, report_
        As in `AdaGradClassifier`.

    Examples
    --------
    >>> from dadagrad.estimators import AdaGradRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0]
    >>> AdaGradRegressor(passes=500).fit(X, y).predict([[10.0]]).round(1).tolist()
    [21.0]
    """

    _losses = ("squared", "absolute", "huber", "quantile", "poisson")
    _names: tuple[str, ...]
    """Of the label columns."""
    _flat: bool
    """Whether y has one dimension."""

    def __init__(
        self,
        loss: str = "squared",
        *,
        huber_width: float = 1.0,
        quantile: float = 0.5,
        update: str = "dual-averaging",
        l1: float = 0.0,
        l2: float = 0.0,
        low: float = -math.inf,
        high: float = math.inf,
        step_size: float | Literal["auto", "free"] = "auto",
        delta: float = 1e-6,
        batch_size: int | Literal["auto"] = "auto",
        passes: int = 5,
        shuffle: bool = True,
        squares: str = "batch",
        fit_intercept: bool = True,
        lanes: int = 4,
        metric: str = "diagonal",
        rank: int = 10,
        blocks: int | tuple[int, ...] | None = None,
        regularizer: str | None = None,
        strength: float | None = None,
        domain: str | None = None,
        radius: float | None = None,
        floor: float | None = None,
        average: bool = False,
        aggressiveness: float = 1.0,
        insensitivity: float = 0.1,
        confidence: float = 1.0,
        strong_convexity: float = 1e-4,
        delay: int = 0,
        exchange: str = "gradients",
        streams: int = 16,
        rounds: int = 40,
        random_state: int | np.random.RandomState | None = None,
        threads: int | None = None,
        checkpoints: str | None = None,
    ) -> None:
        self.loss = loss
        self.huber_width = huber_width
        self.quantile = quantile
        self.update = update
        self.l1 = l1
        self.l2 = l2
        self.low = low
        self.high = high
        self.step_size = step_size
        self.delta = delta
        self.batch_size = batch_size
        self.passes = passes
        self.shuffle = shuffle
        self.squares = squares
        self.fit_intercept = fit_intercept
        self.lanes = lanes
        self.metric = metric
        self.rank = rank
        self.blocks = blocks
        self.regularizer = regularizer
        self.strength = strength
        self.domain = domain
        self.radius = radius
        self.floor = floor
        self.average = average
        self.aggressiveness = aggressiveness
        self.insensitivity = insensitivity
        self.confidence = confidence
        self.strong_convexity = strong_convexity
        self.delay = delay
        self.exchange = exchange
        self.streams = streams
        self.rounds = rounds
        self.random_state = random_state
        self.threads = threads
        self.checkpoints = checkpoints

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def coef_(self) -> Any:
        """The weights, (n_features,) or (n_targets, n_features); a sparse matrix has two axes."""
        learned = self._known()
        if self._flat and not learned.sparse:
            return learned.coefficients[0]
        return learned.coefficients

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train from the start.

        Parameters
        ----------
        X : array, sparse matrix, data frame, dask array or data frame, Dataset, or URL of one
            (n_rows, n_features). Values are kept as float32. Dask blocks are computed one at a
            time, in each pass; a dataset is read partition by partition.
        y : (n_rows,) or (n_rows, n_targets)
            Left out for a dataset, which has its own.
        sample_weight : (n_rows,), optional
            Not negative. Rows of weight 0 are left out; whole numbers stand for repeated rows.

        Returns
        -------
        self

        Raises
        ------
        InputError
            Of data and settings that do not fit; also a `ValueError`.
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Walk these rows once more, or for the first time, going on from what was learned.

        With ``batch_size=1``, ``shuffle=False`` and a fixed step size, a row after the other, in
        however many calls, gives the same bits as one `fit` with ``passes=1``. ``step_size="auto"``
        chooses on the rows of the first call.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The predicted targets: (n_rows,), or (n_rows, n_targets) where y had two dimensions.

        X is anything that `fit` takes; the answer is an array in memory.
        """
        margins = self._margins(X)
        values = self._known().model.predict_labels(margins).reshape(margins.shape)
        return values[:, 0] if self._flat else values

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """The coefficient of determination R^2; y may be left out for a dataset."""
        return float(super().score(*self._scored_by(X, y, sample_weight)))

    # Targets.

    def _check_labels(self, y: Any) -> NDArray[Any]:
        checked: NDArray[Any] = check_array(
            y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self
        )
        # Now, and not in training, which sees the rows in another order.
        check_targets(make_loss(self.loss), checked.reshape(len(checked), -1), "y", 0)
        return checked

    def _take_labels(
        self, y: NDArray[Any], *, new: bool
    ) -> tuple[NDArray[np.float64], tuple[LabelColumn, ...]]:
        labels = y.reshape(len(y), -1)
        flat = y.ndim == 1
        count = labels.shape[1]
        names = ("label",) if flat else tuple(f"label_{k}" for k in range(count))
        if new or not self.__sklearn_is_fitted__():
            self._names, self._flat = names, flat
        self._check_count(count, "y")
        return labels, self._columns()

    def _take_columns(
        self, columns: tuple[LabelColumn, ...], source: str, *, new: bool
    ) -> tuple[LabelColumn, ...]:
        for column in columns:
            if column.names is not None:
                raise InputError(
                    f"{source}: the labels of column {column.name!r} are texts; a regression "
                    "needs numbers: use AdaGradClassifier"
                )
        if new or not self.__sklearn_is_fitted__():
            self._names = tuple(column.name for column in columns)
            self._flat = len(columns) == 1
        self._check_count(len(columns), source)
        return self._columns()

    def _columns(self) -> tuple[LabelColumn, ...]:
        return tuple(LabelColumn(name) for name in self._names)

    def _check_count(self, count: int, source: str) -> None:
        if count != len(self._names):
            raise InputError(
                f"{source} has {count} columns of labels, before there were {len(self._names)}"
            )

    def _labels_of(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        return labels[:, 0] if self._flat else labels
