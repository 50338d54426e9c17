"""What the estimators share: training, going on training, and predicting."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags, check_array
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from dadagrad.config import TrainConfig
from dadagrad.errors import InputError
from dadagrad.estimators.dask_blocks import BlockedMatrix, as_matrix, is_dask
from dadagrad.estimators.fitting import fit, fit_more
from dadagrad.estimators.learned import Learned
from dadagrad.estimators.taking import FLOATS, DataTaker, computed, is_stored, open_stored
from dadagrad.model import Model

_SETTINGS = (
    "loss", "huber_width", "quantile", "update", "l1", "l2", "low", "high", "step_size", "delta",
    "batch_size", "passes", "shuffle", "lanes", "squares", "fit_intercept", "metric", "rank",
    "blocks", "regularizer", "strength", "domain", "radius", "floor", "average", "aggressiveness",
    "insensitivity", "confidence", "strong_convexity", "delay",
    "exchange", "streams", "rounds",
)  # fmt: skip


class LinearEstimator(DataTaker):
    """A linear model that is trained by adaptive subgradient steps."""

    loss: str
    random_state: Any
    threads: int | None
    checkpoints: str | None

    _losses: tuple[str, ...]
    _learned: Learned
    _calls: int
    """Of `partial_fit`, since there is something learned."""

    def _class_weight(self) -> Any:
        """Class weights as training takes them."""
        return None

    # What was learned.

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    def _known(self) -> Learned:
        check_is_fitted(self)
        return self._learned

    @property
    def coef_(self) -> Any:
        """The weights, (n_outputs, n_features) float64; made when first asked for."""
        return self._known().coefficients

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """The (n_outputs,) intercepts; 0 where none is fitted."""
        return self._known().model.intercept

    @property
    def model_(self) -> Model:
        """The model, which can be saved, and which `dadagrad predict` then takes."""
        return self._known().model

    @property
    def report_(self) -> dict[str, Any]:
        """Counts, losses and the step size of the training, as plain JSON."""
        return self._known().report

    @property
    def t_(self) -> float:
        """Steps so far, by weight: a row of weight 2 counts as two."""
        return self._known().state.t

    def sparsify(self) -> Self:
        """Make `coef_` a sparse matrix; worth it where l1 left few weights.

        Returns
        -------
        self
        """
        self._learned = self._known().with_coefficients(sparse=True)
        return self

    def densify(self) -> Self:
        """Make `coef_` an array again, as it is after `fit`.

        Returns
        -------
        self
        """
        self._learned = self._known().with_coefficients(sparse=False)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Training.

    def _fit(self, X: Any, y: Any, sample_weight: Any, query: Any = None) -> Self:
        self._check_loss()
        seed = self._seed()
        taken = self._take(X, y, sample_weight, seed, query, reset=True, new=True)
        if taken is None:
            raise InputError("every sample_weight is zero; training needs a row of weight above 0")
        config = self._config(seed)
        self._learned = fit(taken[0], config, self.threads, self.checkpoints)
        self._learned.feature_names = getattr(self, "feature_names_in_", None)
        self._calls = 0
        self.n_iter_ = config.passes
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, query: Any = None) -> Self:
        self._check_loss()
        before = getattr(self, "_learned", None)
        calls = 0 if before is None else self._calls
        # Each call has an order of its own, and yet the same one in each run.
        seed = int(np.random.SeedSequence([self._seed(), calls]).generate_state(1)[0])
        taken = self._take(X, y, sample_weight, seed, query, reset=before is None, new=False)
        if taken is None:
            if before is None:
                raise InputError(
                    "every sample_weight is zero; the first call needs a row of weight above 0"
                )
            return self
        self._learned = fit_more(*taken, self._config(seed), self.threads, before)
        self._learned.sparse = before is not None and before.sparse
        self._learned.feature_names = getattr(self, "feature_names_in_", None)
        self._calls = calls + 1
        self.n_iter_ = 1
        return self

    def _check_loss(self) -> None:
        if self.loss not in self._losses:
            raise InputError(
                f"loss {self.loss!r} is not one that {type(self).__name__} takes; choose one of "
                f"{', '.join(self._losses)}"
            )

    def _seed(self) -> int:
        """NumPy's global generator is left alone: None stands for 0."""
        given = self.random_state
        if given is None:
            return 0
        if isinstance(given, np.random.RandomState):
            return int(given.randint(2**31 - 1))
        if isinstance(given, Integral) and int(given) >= 0:
            return int(given)
        raise InputError(
            "random_state must be None, a whole number of at least 0 or a RandomState, not "
            f"{given!r}"
        )

    def _config(self, seed: int) -> TrainConfig:
        settings = {name: _plain(getattr(self, name)) for name in _SETTINGS if hasattr(self, name)}
        return TrainConfig(**settings, class_weight=self._class_weight(), seed=seed)

    # Predicting.

    def _margins(self, X: Any) -> NDArray[np.float64]:
        """(n_rows, n_outputs) margins of the rows of X, in their order."""
        check_is_fitted(self)
        if is_stored(X):
            data = open_stored(X)
            model = self.model_
            model.check_compatible(data.schema)
            parts = [model.margins(data.read(i)) for i in range(len(data.partitions))]
            return np.concatenate([np.zeros((0, model.n_outputs)), *parts])
        if is_dask(X):
            matrix = BlockedMatrix(X)
            validate_data(self, matrix.meta, reset=False, skip_check_array=True)
            return np.concatenate([self._margins_of_block(block) for block in matrix.blocks])
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS)
        return self._margins_of_matrix(X)

    def _margins_of_block(self, block: Any) -> NDArray[np.float64]:
        X = as_matrix(block.compute())
        if not X.shape[0]:  # a filter may leave a block without rows
            return np.zeros((0, len(self.intercept_)))
        X = check_array(X, accept_sparse="csr", dtype=FLOATS, input_name="X", estimator=self)
        return self._margins_of_matrix(X)

    def _margins_of_matrix(self, X: Any) -> NDArray[np.float64]:
        learned = self._learned
        products = safe_sparse_dot(X, learned.coefficients.T, dense_output=True)
        margins: NDArray[np.float64] = products + learned.model.intercept
        return margins

    def _scored_by(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """What to score by: the labels and weights of the dataset, where X is one."""
        if not is_stored(X):
            return X, computed(y), computed(sample_weight)
        data = open_stored(X)
        labels, weights = [], []
        for i in range(len(data.partitions)):
            rows = data.read(i)
            labels.append(rows.labels)
            weights.append(np.ones(rows.n_rows) if rows.weights is None else rows.weights)
        if y is None:
            y = self._labels_of(np.concatenate(labels))
        if sample_weight is None and data.schema.weighted:
            sample_weight = np.concatenate(weights)
        return data, y, sample_weight

    def _labels_of(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        """A dataset's (n_rows, n_label_columns) labels as `predict` would answer them."""
        raise NotImplementedError


def _plain(setting: Any) -> Any:
    """A setting as a plain Python number where NumPy has one, as grid searches do."""
    if isinstance(setting, bool | np.bool_):
        return bool(setting)
    if isinstance(setting, Integral):
        return int(setting)
    return float(setting) if isinstance(setting, Real) else setting
