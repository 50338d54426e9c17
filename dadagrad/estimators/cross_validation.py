"""Estimators that choose step size and penalties by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, indexable

from dadagrad.config import SWEPT, TrainConfig
from dadagrad.data.dask_blocks import is_dask
from dadagrad.errors import InputError
from dadagrad.estimators.arguments import check_weights, is_stored, seed_of, unchanged_by_failure
from dadagrad.estimators.classifier import AdaGradClassifier
from dadagrad.estimators.regressor import AdaGradRegressor
from dadagrad.training.result import report_of_setting

if TYPE_CHECKING:
    from dadagrad.estimators.base import LinearEstimator as _Estimator
else:
    _Estimator = object

_L1 = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)
_DOCS = """
    cv : int, cross-validation generator or iterable, default=5
        Folds, as `sklearn.model_selection.check_cv` takes them.
    scoring : str, callable or None, default=None
        Measure of a model on the rows of a fold, with their weights if it takes them; None is
        `score`.

    Attributes
    ----------
    best_params_, best_score_, best_index_
        Setting of the best mean score, this score, and the place of both in `cv_results_`.
    cv_results_ : dict of arrays
        ``params``, ``mean_test_score``, ``std_test_score``, ``rank_test_score`` and the
        ``split0_test_score`` of each fold, as in `sklearn.model_selection.GridSearchCV`."""


class CrossValidated(_Estimator):
    """Choice among all combinations of lists of `step_size`, `l1` and `l2`.

    All settings of a fold are trained in one stream over its rows. The best is fitted to all rows,
    with `checkpoints` if they are wanted.
    """

    cv: Any
    scoring: Any
    _more_parameters = {"l1": _L1, "cv": 5, "scoring": None}  # noqa: RUF012
    _more_parameter_docs = _DOCS

    @unchanged_by_failure
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose a setting by cross-validation, and train with it on all rows.

        Parameters
        ----------
        X, y, sample_weight
            As without cross-validation, but in memory.
        groups : (n_rows,), optional
            Group of each row, for a `cv` that keeps groups together, such as `GroupKFold`.
        """
        if is_stored(X) or is_dask(X):
            raise InputError(
                "cross-validation needs rows in memory; for datasets there is `dadagrad.sweep`"
            )
        if self.client is not None:
            raise InputError(
                "cross-validation needs rows in memory, which workers of a cluster cannot read; "
                "leave out client, or use `dadagrad.sweep`, which takes one"
            )
        if self.early_stopping:
            raise InputError("cross-validation makes all passes: leave out early_stopping")
        if isinstance(self.scoring, list | tuple | set | dict):
            raise InputError("scoring is several measures; give the one that chooses")
        self.__dict__.pop("best_params_", None)
        seed = seed_of(self.random_state)
        self._make_dataset(X, y, sample_weight, None, seed, reset=True, new_labels=True)  # checks
        grid = self._config(seed).alternatives()
        X, y, groups = indexable(X, y, groups)
        weights = None if sample_weight is None else check_weights(sample_weight, len(y))
        folds = list(check_cv(self.cv, y, classifier=is_classifier(self)).split(X, y, groups))
        scores = np.array([self._score_fold(X, y, weights, *fold) for fold in folds]).T
        if (alone := self._trained_alone(grid)) is not None:
            self.best_params_ = {"l1": 0.0, "l2": 0.0}  # the only ones for now
            scores[alone] = [self._score_fold(X, y, weights, *fold)[0] for fold in folds]
        ranked = np.where(np.isnan(scores), -np.inf, scores).mean(axis=1)
        self.best_index_ = int(np.argmax(ranked))
        params = [{name: getattr(config, name) for name in SWEPT} for config in grid]
        self.best_params_, self.best_score_ = params[self.best_index_], ranked[self.best_index_]
        self.cv_results_ = {
            "params": params,
            "mean_test_score": ranked,
            "std_test_score": scores.std(axis=1),
            "rank_test_score": np.array([1 + int((ranked > each).sum()) for each in ranked]),
        } | {f"split{number}_test_score": column for number, column in enumerate(scores.T)}
        return self._fit(X, y, sample_weight)

    def _trained_alone(self, grid: Sequence[TrainConfig]) -> int | None:
        """Number of the setting that may average its weights, as those with penalties cannot."""
        base = grid[0]
        unpenalized = [n for n, config in enumerate(grid) if not (config.l1 or config.l2)]
        may_average = base.average == base.step_size == "auto" and base.update.has_step_size
        return unpenalized[0] if may_average and 0 < len(unpenalized) < len(grid) else None

    def _score_fold(
        self,
        X: Any,
        y: Any,
        weights: NDArray[np.float64] | None,
        train: NDArray[np.int64],
        test: NDArray[np.int64],
    ) -> list[float]:
        """Score each setting, trained on the rows `train`, on the rows `test`."""
        X_train, y_train = _safe_indexing(X, train), _safe_indexing(y, train)
        weights_train = None if weights is None else weights[train]
        self._fit(X_train, y_train, weights_train, saved=False)  # checkpoints are those of all rows
        fitted, scorer = self._state, check_scoring(self, self.scoring)
        scores, weighted = [], {}
        if weights is not None:
            test = test[weights[test] > 0]
            measure = self.score if self.scoring is None else getattr(scorer, "_score_func", scorer)
            if "sample_weight" in signature(measure).parameters:
                weighted["sample_weight"] = weights[test]
        X_test, y_test = _safe_indexing(X, test), _safe_indexing(y, test)
        for number, setting in enumerate(fitted.report["settings"]):
            report = fitted.report | report_of_setting(fitted.problem, fitted.place, number)
            self._state = replace(fitted, report=report, _model=None)
            diverged = setting["progressive_loss"] is None
            scores.append(np.nan if diverged else float(scorer(self, X_test, y_test, **weighted)))
        return scores

    def _config(self, seed: int) -> TrainConfig:
        """Return the settings side by side, or the best if it is known."""
        config = super()._config(seed)
        return replace(config, **getattr(self, "best_params_", {}))


class AdaGradClassifierCV(CrossValidated, AdaGradClassifier):
    """`AdaGradClassifier` whose `step_size`, `l1` and `l2` are chosen by cross-validation.

    Parameters
    ----------
    {parameters}

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dadagrad.estimators import AdaGradClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> found = AdaGradClassifierCV(loss="logistic", l1=[1e-4, 1e-1]).fit(scale(X), y)
    >>> found.best_params_["l1"]
    0.0001
    """


class AdaGradRegressorCV(CrossValidated, AdaGradRegressor):
    """`AdaGradRegressor` whose `step_size`, `l1` and `l2` are chosen by cross-validation.

    Parameters
    ----------
    {parameters}
    """
