"""Scores of rankings, `AdaGradRanker`, and queries from sources to datasets."""

from itertools import pairwise

import dask.array
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import ndcg_score

from dadagrad import (
    AdaGradRanker,
    DadagradError,
    InputError,
    dataset_from_arrays,
    evaluate,
    ingest,
    open_dataset,
    predict,
    train,
)
from dadagrad.model.ranking import RankingScores, ndcg

TRUTH = np.random.default_rng(77).normal(size=12)


def letor(n_queries=120, seed=0):
    """Dense rows, relevance 0 to 3 within each query, and the queries, in random order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 20, n_queries)
    query = np.repeat(np.arange(n_queries) + 100, sizes)
    X = rng.normal(size=(len(query), 12)).round(3)
    X[rng.random(X.shape) < 0.5] = 0.0
    # Queries differ in how large their scores are, which a ranking must not mind.
    score = X @ TRUTH + 0.2 * rng.normal(size=len(query))
    y = np.zeros(len(query))
    for one in np.unique(query):
        rows = np.flatnonzero(query == one)
        y[rows] = np.floor(4 * score[rows].argsort().argsort() / len(rows))
    order = rng.permutation(len(query))
    return X[order], y[order], query[order]


def write_svmlight(path, X, y, query):
    order = np.argsort(query, kind="stable")
    lines = [
        f"{y[row]:g} qid:{query[row]} "
        + " ".join(f"{k + 1}:{X[row, k]:g}" for k in np.flatnonzero(X[row]))
        for row in order
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


relevances = st.lists(st.integers(0, 4), min_size=2, max_size=25)


@given(relevance=relevances, data=st.data())
def test_ndcg_is_that_of_scikit_learn(relevance, data):
    relevance = np.array(relevance, float)
    kinds = st.lists(st.integers(-3, 3), min_size=len(relevance), max_size=len(relevance))
    scores = np.array(data.draw(kinds), float)
    found = ndcg(relevance, scores)
    if not relevance.any():
        assert found is None
        return
    expected = ndcg_score(2.0 ** relevance[None] - 1, scores[None], k=10)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_ndcg_of_huge_relevances_does_not_overflow():
    with np.errstate(all="raise", under="ignore"):
        assert ndcg(np.array([5000.0, 4999.0]), np.array([1.0, 0.0])) == pytest.approx(1.0)
        assert 0.6 < ndcg(np.array([5000.0, 0.0]), np.array([0.0, 1.0])) < 0.64


def test_scores_are_means_over_queries():
    relevance = np.array([2.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    queries = np.array([4, 4, 4, 9, 9, 2, 2])
    scores = np.array([0.3, 0.1, 0.3, 5.0, 4.0, 1.0, 2.0])
    found = RankingScores()
    found.add(relevance, queries, scores)
    assert found.queries == 3
    # Only the first has pairs: (0, 1) in order, (0, 2) tied, (2, 1) in order.
    assert found.means()["accuracy"] == pytest.approx(2.5 / 3)
    assert found.means()["loss"] == pytest.approx((0.8 + 1.0 + 0.8) / 3)
    # The last has nothing relevant; in the second every order is the best.
    first = ndcg(relevance[:3], scores[:3])
    assert found.means()["ndcg"] == pytest.approx((first + 1.0) / 2)
    assert RankingScores().means() == {"loss": None, "accuracy": None, "ndcg": None}


def test_a_ranker_learns_an_order():
    X, y, query = letor()
    there = letor(seed=1)
    ranker = AdaGradRanker().fit(X, y, query)
    assert ranker.score(*there) > 0.95
    assert ranker.predict(X).shape == (len(y),)
    assert ranker.coef_.shape == (1, 12)
    np.testing.assert_allclose(ranker.predict(X), X @ ranker.coef_[0], rtol=1e-6, atol=1e-9)
    assert np.corrcoef(ranker.coef_[0], TRUTH)[0, 1] > 0.95
    np.testing.assert_array_equal(ranker.intercept_, 0.0)
    same = AdaGradRanker(threads=1).fit(X, y, query)
    np.testing.assert_array_equal(same.coef_, ranker.coef_)
    other = clone(ranker).set_params(random_state=3).fit(X, y, query)
    assert (other.coef_ != ranker.coef_).any()
    batched = AdaGradRanker(batch_size=16, step_size=0.3).fit(X, y, query)
    assert batched.score(*there) > 0.95
    assert ranker.report_["progressive_error"] < 0.15


def test_a_ranker_measures_queries_that_are_held_out():
    X, y, query = letor()
    ranker = AdaGradRanker(holdout=0.2, early_stopping=True, passes=9).fit(X, y, query)
    held = ranker.report_["holdout"]
    assert len(y) - ranker.report_["by_pass"][0]["rows"] >= held["rows"] >= 0.2 * len(y)
    assert held["ndcg"] > 0.95
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ranker.score(X[1:], y, query)


def test_numbers_learned_for_the_rows_of_queries_are_measured_as_an_order_too():
    X, y, query = letor()
    data = dataset_from_arrays(X, y, query=query, partition_nnz=400)
    model = train(data, loss="squared", step_size=0.2).model
    measured = evaluate(model, data)
    scores = model.decision_function(X)[:, 0]
    quality = [ndcg(y[query == each], scores[query == each]) for each in np.unique(query)]
    assert measured["ndcg"] == pytest.approx(np.mean([q for q in quality if q is not None]))
    assert measured["queries"] == len(quality)
    assert "ndcg" not in evaluate(model, (X, y))


def test_predictions_name_the_queries_of_their_rows(tmp_path):
    lines = [f"{row % 3} qid:{40 + row // 3} 1:{row % 3 / 2}\n" for row in range(12)]
    (tmp_path / "a.txt").write_text("".join(lines))
    data = str(tmp_path / "a.zarr")
    ingest(tmp_path / "a.txt", data, shuffle=3)
    model = train(data, loss="ranking", step_size=0.2).model
    for rows in (str(tmp_path / "a.txt"), data):
        predict(model, rows, tmp_path / "out.parquet", overwrite=True)
        table = pq.read_table(tmp_path / "out.parquet").to_pydict()
        assert table["query"] == [40 + (line - 1) // 3 for line in table["line"]]


def test_rows_of_weight_zero_are_no_rows():
    X, y, query = letor()
    weight = np.random.default_rng(2).integers(0, 2, len(y))
    kept = weight > 0
    one = AdaGradRanker(step_size=0.2).fit(X, y, query, weight)
    other = AdaGradRanker(step_size=0.2).fit(X[kept], y[kept], query[kept])
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_what_a_ranker_refuses():
    for message, arguments in (
        ("the query of each row is missing; give query=", {}),
        (r"query has shape \(3,\)", {"query": [1, 1, 1]}),
        ("whole numbers", {"query": [1.0, 1.0]}),
        ("fit in int64", {"query": np.array([1, 2**63], np.uint64)}),
        ("found no pair of rows of one query", {"query": [1, 2]}),
        ("dask collection may not have", {"X": dask.array.eye(2, chunks=2), "query": [1, 1]}),
        ("one relevance a row", {"y": np.eye(2), "query": [1, 1]}),
    ):
        with pytest.raises(DadagradError, match=message):
            AdaGradRanker().fit(**{"X": np.eye(2), "y": np.array([0.0, 1.0])} | arguments)
    with pytest.raises(InputError, match="choose one of ranking"):
        AdaGradRanker(loss="hinge").fit(np.eye(2), [0, 1], query=[1, 1])


def test_rows_of_a_query_are_put_together():
    X, y, query = letor(30)
    data = dataset_from_arrays(X, y, query=query, partition_nnz=400)
    assert len(data.partitions) > 3
    parts = [data.read(number) for number in range(len(data.partitions))]
    met = np.concatenate([part.queries for part in parts])
    # In the order in which the queries come, and within them in that of the rows.
    first = {one: row for row, one in reversed(list(enumerate(query.tolist())))}
    order = sorted(range(len(y)), key=lambda row: (first[query[row]], row))
    np.testing.assert_array_equal(met, query[order])
    np.testing.assert_array_equal(np.concatenate([part.labels[:, 0] for part in parts]), y[order])
    for one, other in pairwise(parts):
        assert one.queries[-1] != other.queries[0]


@pytest.mark.parametrize(("shuffle", "workers"), [(None, 1), (3, 2)])
def test_queries_get_from_svmlight_to_a_model(shuffle, workers, tmp_path):
    X, y, query = letor()
    source = write_svmlight(tmp_path / "train.txt", X, y, query)
    out, again = str(tmp_path / "data.zarr"), str(tmp_path / "again.zarr")
    ingest(source, out, shuffle=shuffle, partition_nnz=2000, workers=workers)
    ingest(out, again, partition_nnz=900)
    for url in (out, again):
        data = open_dataset(url)
        assert data.schema.queried
        assert len(data.partitions) > 3
        found = [np.unique(data.read(number).queries) for number in range(len(data.partitions))]
        np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.unique(query))
        ranker = AdaGradRanker().fit(url)
        assert ranker.score(*letor(seed=1)) > 0.95
        measured = evaluate(ranker.model_, data)
        assert measured["ndcg"] == pytest.approx(ranker.score(X, y, query))
        assert (measured["queries"], measured["rows"]) == (120, len(y))


def test_sources_with_and_without_queries_do_not_mix(tmp_path):
    X, y, query = letor(5)
    one = write_svmlight(tmp_path / "one.txt", X, y, query)
    other = tmp_path / "other.txt"
    other.write_text("1 1:2\n0 1:3\n")
    with pytest.raises(InputError, match="some rows have a query"):
        ingest([one, str(other)], str(tmp_path / "data.zarr"), format="svmlight")
