"""`AdaGradRanker`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from dadagrad.data.dataset import LabelColumn
from dadagrad.errors import InputError
from dadagrad.estimators.base import LinearEstimator
from dadagrad.estimators.dask_blocks import is_dask
from dadagrad.estimators.taking import check_queries, computed, is_stored, open_stored


class AdaGradRanker(LinearEstimator):
    """Linear ranking of the rows of queries, trained by AdaGrad on pairs.

    Of two rows of one query, the one with the larger y is to have the larger score. The loss is
    the hinge of the difference of their scores. In each pass, each row is paired with one other
    row of its query that has another y, drawn at random.

    Parameters
    ----------
    loss : {"ranking"}, default="ranking"
    update, l1, l2, low, high, step_size, delta, batch_size, passes, shuffle, squares, lanes, \
metric, rank, blocks, regularizer, strength, domain, radius, floor, average, aggressiveness, \
insensitivity, confidence, strong_convexity, delay, exchange, streams, rounds, random_state, \
threads, checkpoints
        As in `AdaGradClassifier`. `shuffle` takes the queries in a random order, their rows
        together; `random_state` also decides the pairs. There is no intercept: it would cancel.

    Attributes
    ----------
    coef_ : (1, n_features) float64
        Made when first asked for.
    n_features_in_, feature_names_in_, n_iter_, t_, model_, report_
        As in `AdaGradClassifier`.

    Examples
    --------
    >>> from dadagrad.estimators import AdaGradRanker
    >>> X = [[3.0, 1.0], [1.0, 1.0], [2.0, 5.0], [9.0, 5.0]]
    >>> ranker = AdaGradRanker(passes=20).fit(X, [1, 0, 0, 1], query=[7, 7, 8, 8])
    >>> ranker.predict(X).argsort().tolist()
    [1, 2, 0, 3]
    """

    _losses = ("ranking",)

    def __init__(
        self,
        loss: str = "ranking",
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

    def fit(
        self,
        X: Any,
        y: Any = None,
        query: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
    ) -> Self:
        """Train from the start.

        Parameters
        ----------
        X : array, sparse matrix, data frame, Dataset, or URL of one
            (n_rows, n_features). Values are kept as float32. A dataset is read partition by
            partition, and has its own y, queries and weights.
        y : (n_rows,)
            Relevance: of two rows of a query, that with the larger one belongs first.
        query : (n_rows,) of whole numbers
            The query of each row, in any order. `qid` is another name for it.
        sample_weight : (n_rows,), optional
            Not negative. Rows of weight 0 are left out; of a pair, the weight of the row that drew
            the other counts.

        Returns
        -------
        self

        Raises
        ------
        InputError
            Of data and settings that do not fit, like a missing `query`; also a `ValueError`.
        """
        return self._fit(X, y, sample_weight, self._queries(X, query, qid))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        query: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
    ) -> Self:
        """Walk these rows once more, or for the first time, going on from what was learned.

        ``step_size="auto"`` chooses on the rows of the first call.

        Parameters
        ----------
        X, y, query, sample_weight, qid
            As in `fit`.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, sample_weight, self._queries(X, query, qid))

    def predict(self, X: Any) -> NDArray[np.float64]:
        """(n_rows,) scores: the larger, the further to the front of its query a row belongs."""
        return self._margins(X)[:, 0]

    def score(
        self,
        X: Any,
        y: Any = None,
        query: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
    ) -> float:
        """The mean NDCG of the first 10 rows, over the queries with a y above 0.

        Gains are 2^y - 1, and equal scores share their places. y and `query` are left out for a
        dataset.
        """
        from dadagrad.ranking import RankingScores

        scores = RankingScores()
        if is_stored(X):
            for rows, margins in self._stored_margins(X):
                scores.add(rows.labels[:, 0], rows.queries, margins)
        else:
            queries = check_queries(self._queries(X, query, qid), len(computed(y)))
            order = np.argsort(queries, kind="stable")
            relevance = self._check_labels(computed(y))
            scores.add(relevance[order], queries[order], self.predict(X)[order])
        quality = scores.means()["ndcg"]
        if quality is None:
            raise InputError("no query has a row with a y above 0; NDCG needs at least one")
        return quality

    def _stored_margins(self, X: Any) -> Iterator[tuple[Any, NDArray[np.float64]]]:
        from dadagrad.evaluation import check_suitable

        data, model = open_stored(X), self.model_
        check_suitable(model, data)
        for number in range(len(data.partitions)):
            rows = data.read(number)
            yield rows, model.margins(rows)[:, 0]

    def _queries(self, X: Any, query: Any, qid: Any) -> Any:
        """The argument that says which query each row belongs to."""
        if query is not None and qid is not None:
            raise InputError("query and qid are two names for the same; give one of them")
        given = qid if query is None else query
        if is_dask(X):
            raise InputError(
                "a ranking needs the rows of a query together, which the blocks of a dask "
                "collection may not have; give arrays, or a dataset made by `dadagrad ingest`"
            )
        if given is None and not is_stored(X):
            raise InputError(
                "which query each row belongs to is missing; give query=, one whole number for "
                "each row of X"
            )
        return computed(given)

    # Labels.

    def _check_labels(self, y: Any) -> NDArray[Any]:
        checked: NDArray[Any] = check_array(
            y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self
        )
        if checked.ndim != 1:
            raise InputError(f"y has shape {checked.shape}; it must have one relevance a row")
        return checked

    def _take_labels(
        self, y: NDArray[Any], *, new: bool
    ) -> tuple[NDArray[np.float64], tuple[LabelColumn, ...]]:
        return y[:, None], (LabelColumn("relevance"),)

    def _take_columns(
        self, columns: tuple[LabelColumn, ...], source: str, *, new: bool
    ) -> tuple[LabelColumn, ...]:
        return columns
