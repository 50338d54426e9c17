"""Linear ranking with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length

from dadagrad.data.arrays import check_queries
from dadagrad.data.dask_blocks import is_dask
from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.errors import InputError
from dadagrad.estimators.arguments import computed, is_stored, open_stored
from dadagrad.estimators.base import Columns, LinearEstimator
from dadagrad.model.evaluate import evaluate
from dadagrad.model.ranking import RankingScores


class AdaGradRanker(LinearEstimator):
    """Linear ranking of the rows of queries, trained by AdaGrad on pairs.

    The model learns to give the larger score to the row with the larger y, among rows of one query.
    The loss is the hinge of the difference of two scores. In each pass, each row is paired with one
    random row of its query that has another y. Queries are shuffled as a whole, and `random_state`
    also decides the pairs. There is no intercept: it would cancel.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    n_features_in_, feature_names_in_, n_iter_
        As in `AdaGradClassifier`.

    Examples
    --------
    >>> from dadagrad.estimators import AdaGradRanker
    >>> X = [[3.0, 1.0], [1.0, 1.0], [2.0, 5.0], [9.0, 5.0]]
    >>> ranker = AdaGradRanker(passes=20).fit(X, [1, 0, 0, 1], query=[7, 7, 8, 8])
    >>> ranker.predict(X).argsort().tolist()
    [1, 2, 0, 3]
    """

    _tasks = ("ranking",)
    _excluded_settings = ("calibration", "center", "class_weight", "fit_intercept", "seed")

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        query: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train from the start, as `AdaGradRegressor.fit`; X is no dask collection.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dataset, or URL of one
        y : (n_rows,)
            Relevance; the rows of a query are ranked by decreasing relevance.
        query : (n_rows,) of whole numbers
            Query of each row, in any order.
        sample_weight : (n_rows,), optional
            Weights of at least 0. The weight of a pair is that of the row that drew the other.
        """
        return self._fit(X, y, sample_weight, self._queries(X, query))

    def partial_fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        query: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from these rows in one pass, as `AdaGradClassifier.partial_fit`."""
        return self._partial_fit(X, y, sample_weight, self._queries(X, query))

    def score(self, X: Any, y: Any = None, query: ArrayLike | None = None) -> float:
        """Return the mean NDCG of the first 10 rows, over the queries with a y above 0.

        Gains are 2^y - 1, and equal scores share their ranks. A dataset needs no y and no `query`.
        """
        if is_stored(X):
            quality = evaluate(self.model_, open_stored(X), loss=self.loss)["ndcg"]
        else:
            encoded, scores = self._queries(X, query), self.predict(X)
            relevance = self._check_relevance(computed(y, "y"))
            check_consistent_length(scores, relevance)
            queries = check_queries(encoded, len(scores), "the arguments")
            order = np.argsort(queries, kind="stable")
            ranking = RankingScores()
            ranking.add(relevance[order], queries[order], scores[order])
            quality = ranking.means()["ndcg"]
        if quality is None:
            raise InputError("no query has a row with a y above 0; NDCG needs at least one")
        return float(quality)

    def _queries(self, X: Any, query: Any) -> Any:
        """Check the query of each row, and return it."""
        if is_dask(X):
            raise InputError(
                "a ranking needs the rows of a query together, which the blocks of a dask "
                "collection may not have; give arrays, or a dataset made by `dadagrad ingest`"
            )
        if query is None and not is_stored(X):
            raise InputError(
                "the query of each row is missing; give query=, one whole number for each row of X"
            )
        return computed(query, "query")

    def _check_relevance(self, y: Any) -> NDArray[np.float64]:
        checked: NDArray[np.float64] = check_array(
            y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self
        )
        if checked.ndim != 1:
            raise InputError(f"y has shape {checked.shape}; it must have one relevance a row")
        return checked

    def _encode_labels(
        self, y: NDArray[Any], kept: NDArray[np.bool_], *, new_labels: bool
    ) -> tuple[NDArray[np.float64], Columns]:
        return self._check_relevance(y)[kept, None], (LabelColumn("relevance"),)

    def _adopt_labels(self, data: Dataset, *, new_labels: bool) -> Dataset:
        return data

    def _decode_labels(self, labels: NDArray[np.float64]) -> NDArray[Any]:
        return labels[:, 0]
