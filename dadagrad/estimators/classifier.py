"""`AdaGradClassifier`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if

from dadagrad.data.dataset import LabelColumn
from dadagrad.errors import InputError
from dadagrad.estimators.base import LinearEstimator
from dadagrad.estimators.label_code import LabelCode, as_labels, is_indicator
from dadagrad.estimators.taking import is_stored, open_stored
from dadagrad.losses import WITH_PROBABILITIES


def _has_probabilities(estimator: AdaGradClassifier) -> bool:
    if estimator.loss not in WITH_PROBABILITIES:
        raise AttributeError(
            "probabilities come with loss='logistic' or 'softmax', not with "
            f"loss={estimator.loss!r}"
        )
    return True


class AdaGradClassifier(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Linear classifier trained by AdaGrad.

    Two classes are one linear model, more are one model each, trained side by side in the same
    passes over the data; so are the columns of a multi-label y. The losses "softmax" and
    "multiclass-hinge" look at all classes together, and two classes are two models as well.

    Parameters
    ----------
    loss : {"hinge", "squared-hinge", "logistic", "softmax", "multiclass-hinge"}, default="hinge"
        "logistic" and "softmax" give probabilities; softmax those of multinomial regression.
    update : str, default="dual-averaging"
        How gradients become weights: also "mirror-descent" or "ftrl". Row by row, and without
        metric, penalties and domain, learn "pa", "pa-1", "pa-2", "arow", "arow-full", "eg",
        "eg-signed", "strongly-convex" and "strongly-convex-simplex".
    l1, l2 : float, default=0.0
        Strength of the penalties l1 |w|_1 + l2/2 |w|_2^2, which each step pays. The intercept is
        free of them.
    low, high : float, default=-inf, inf
        Box that holds every weight; 0 must be in it.
    step_size : float, "auto" or "free", default="auto"
        "auto" tries a grid on the first rows and takes the best; "free" has none: each weight
        bets on its gradients. AdaGrad needs no schedule.
    delta : float, default=1e-6
        Added to the diagonal of the metric.
    batch_size : int or "auto", default="auto"
        Rows of one step. "auto" is 1: a step for each row.
    passes : int, default=5
        How often the data is walked. On a few hundred to a few thousand rows, fewer leave
        accuracy behind and more hardly add to it; on millions of rows one is enough.
    shuffle : bool, default=True
        Take the rows in a random order, drawn once, and the partitions in another one in each
        pass. Rows of a stored dataset keep their order inside partitions; those of a dask
        collection stay in their block.
    squares : {"batch", "example"}, default="batch"
        Whether the metric collects the square of a batch's mean gradient or the mean of its rows'
        squares; the same where a batch is one row.
    fit_intercept : bool, default=True
    class_weight : None, "balanced" or dict of class to weight, default=None
        Multiplies the weight of each row by that of its class. "balanced" weighs classes by one
        over their number of rows. A class that is not in the dict weighs 1.
    lanes : int, default=4
        Partitions that give rows to a batch side by side; matters for more than one row a batch
        and more than one partition.
    metric : str, default="diagonal"
        In what steps are measured: "diagonal", "full", "block", "sketch", "corrected-sketch",
        "identity", "normalized", "radagrad", "ada-lr" or "fd-son". Only the first is compiled.
    rank : int, default=10
        Directions of a sketch or a random projection.
    blocks : int, tuple of int or None, default=None
        Features in each block, for the metric "block" and the regularizer "group".
    regularizer : str or None, default=None
        "l2-norm", "l-infinity", "group", "mixed-l2" or "mixed-l-infinity", times `strength`.
    strength : float or None, default=None
    domain : str or None, default=None
        "l1-ball", "l2-ball" or "simplex" of some `radius`, or "floor-simplex" with a `floor`.
    radius, floor : float or None, default=None
    average : bool, default=False
        Take the mean of the weights that all steps met.
    aggressiveness, insensitivity : float, default=1.0, 0.1
        C and epsilon of the passive-aggressive updates.
    confidence : float, default=1.0
        r of "arow" and "arow-full".
    strong_convexity : float, default=1e-4
        sigma of "strongly-convex" and "strongly-convex-simplex".
    delay : int, default=0
        With k, the gradient of a step is taken at the weights of k steps before, as on a cluster
        whose messages take long; for a `batch_size` above 1.
    exchange : {"gradients", "local-steps"}, default="gradients"
        With "local-steps" several streams walk rows of their own, one step per row, and are
        merged now and then, as on a cluster with few messages.
    streams, rounds : int, default=16, 40
        Of local steps: how many streams, and how often they are merged in the first pass.
    random_state : int, RandomState or None, default=None
        Decides the order of rows. None is 0: the same call gives the same bits.
    threads : int or None, default=None
        Threads that read and compute; None takes 2 at most. The result does not depend on it.
    checkpoints : str or None, default=None
        URL of a folder. `fit` leaves checkpoints there, and goes on from them when it is called
        with the same data and settings again.

    Attributes
    ----------
    classes_ : (n_classes,)
        The distinct labels, sorted; of a multi-label y the numbers of its columns.
    coef_ : (1, n_features), (n_classes, n_features) or (n_labels, n_features) float64
        One row for two classes, but two with the losses over all classes. Made when first asked
        for.
    intercept_ : (n_outputs,) float64
    n_features_in_ : int
    feature_names_in_ : (n_features,) of str
        Where X was a data frame with texts for column names.
    n_iter_ : int
        Passes of the last `fit` or `partial_fit`.
    t_ : float
        Steps so far, by weight: a row of weight 2 counts as two.
    model_ : dadagrad.model.Model
    report_ : dict
        Counts, losses and the step size of the training.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dadagrad.estimators import AdaGradClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> classifier = AdaGradClassifier(loss="logistic").fit(scale(X), y)
    >>> round(classifier.score(scale(X), y), 2)
    0.98
    """

    _losses = ("hinge", "squared-hinge", "logistic", "softmax", "multiclass-hinge")
    _code: LabelCode

    def __init__(
        self,
        loss: str = "hinge",
        *,
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
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
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
        self.class_weight = class_weight
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
        tags.classifier_tags.multi_label = True
        return tags

    @property
    def classes_(self) -> NDArray[Any]:
        """The distinct labels, sorted; of a multi-label y the numbers of its columns."""
        self._known()
        return self._code.classes

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train from the start.

        Parameters
        ----------
        X : array, sparse matrix, data frame, dask array or data frame, Dataset, or URL of one
            (n_rows, n_features). Values are kept as float32. Dask blocks are computed one at a
            time, in each pass; a dataset is read partition by partition.
        y : (n_rows,), or (n_rows, n_labels) of 0 and 1
            Labels of any type that can be sorted. Left out for a dataset, which has its own.
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

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Walk these rows once more, or for the first time, going on from what was learned.

        With ``batch_size=1``, ``shuffle=False`` and a fixed step size, a row after the other, in
        however many calls, gives the same bits as one `fit` with ``passes=1``. ``step_size="auto"``
        chooses on the rows of the first call.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : (n_classes,)
            All labels there will be; needed in the first call, unless y has several columns or X
            is a dataset.

        Returns
        -------
        self
        """
        if self.class_weight == "balanced":
            raise InputError(
                "class_weight='balanced' needs all rows, and partial_fit sees some of them; give "
                "a dict of weights instead"
            )
        self._take_classes(X, y, classes)
        return self._partial_fit(X, y, sample_weight)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Margins: (n_rows,) for two classes, else (n_rows, n_classes or n_labels).

        Where two classes have a model each, the margin of the second less that of the first.
        """
        margins = self._margins(X)
        if margins.shape[1] == 1:
            return margins[:, 0]
        if self._known().model.task == "multiclass" and margins.shape[1] == 2:
            return margins[:, 1] - margins[:, 0]
        return margins

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely labels: (n_rows,), or (n_rows, n_labels) of 0 and 1.

        X is anything that `fit` takes; the answer is an array in memory.
        """
        return self._code_known().decode(self._margins(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n_rows, n_classes) probabilities, or (n_rows, n_labels) of each label.

        With logistic loss and more than two classes, each has a model of its own; their
        probabilities are divided by their sum.
        """
        return self._known().model.probabilities(self._margins(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            logarithms: NDArray[np.float64] = np.log(self.predict_proba(X))
        return logarithms

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Share of rows whose label is predicted; y may be left out for a dataset."""
        return float(super().score(*self._scored_by(X, y, sample_weight)))

    # Labels.

    def _code_known(self) -> LabelCode:
        self._known()
        return self._code

    def _take_classes(self, X: Any, y: Any, classes: ArrayLike | None) -> None:
        """Learn from the arguments of a first `partial_fit` what labels there will be."""
        if self.__sklearn_is_fitted__():
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise InputError(
                    f"classes={classes!r} are not those of the first call, {self.classes_!r}"
                )
            return
        if is_stored(X) and classes is None:
            data = open_stored(X)
            self._code = LabelCode.of_columns(data.schema.label_columns, data.url)
        elif not is_stored(X) and is_indicator(y):
            self._code = LabelCode.of_indicators(y.shape[1])
        elif classes is None:
            raise InputError("classes must be passed on the first call to partial_fit")
        else:
            self._code = LabelCode.of_classes(classes)

    def _check_labels(self, y: Any) -> NDArray[Any]:
        return as_labels(y)

    def _take_labels(
        self, y: NDArray[Any], *, new: bool
    ) -> tuple[NDArray[np.float64], tuple[LabelColumn, ...]]:
        if not new:
            return self._code.encode(y), self._code.columns
        self._code = LabelCode.of_labels(y)
        labels = self._code.encode(y)
        return labels, self._code.counted(labels)

    def _take_columns(
        self, columns: tuple[LabelColumn, ...], source: str, *, new: bool
    ) -> tuple[LabelColumn, ...]:
        if new:
            self._code = LabelCode.of_columns(columns, source)
        else:
            self._code.check_columns(columns, source)
        return self._code.columns

    def _class_weight(self) -> Any:
        if isinstance(self.class_weight, Mapping):
            return self._code.weights(self.class_weight)
        return self.class_weight

    def _labels_of(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        return self._code_known().labels_of(labels)
