"""Pairs of rows of one query: which are drawn, what their rows are, and training on them."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.training_cases import dense_rows, make_data
from helpers.zarr_cases import write_zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dadagrad import (
    InputError,
    TrainConfig,
    dataset_from_arrays,
    evaluate,
    open_dataset,
    predict,
    train,
)
from dadagrad.data.dataset import MemoryDataset, Schema
from dadagrad.data.rows import query_begins
from dadagrad.training.schedule.base import Slice
from dadagrad.training.worker.pairs import draw_partners, pair_rows

groups = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=30)


@given(rows=groups, seed=st.integers(0, 99), data=st.data())
def test_partners_are_of_the_same_query_and_another_relevance(rows, seed, data):
    queries, relevance = (np.array(column) for column in zip(*rows, strict=True))
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    begins = query_begins(queries)
    run = np.searchsorted(begins, np.arange(len(rows)), side="right")
    partners = draw_partners(relevance.astype(float), queries, start, stop, (seed, 0, 0))
    assert partners.shape == (stop - start,)
    for row, partner in enumerate(partners, start):
        possible = np.flatnonzero((run == run[row]) & (relevance != relevance[row]))
        assert partner in possible if len(possible) else partner == -1
    whole = draw_partners(relevance.astype(float), queries, 0, len(rows), (seed, 0, 0))
    np.testing.assert_array_equal(partners, whole[start:stop])


def test_all_partners_are_equally_likely():
    queries, relevance = np.array([3, 5, 5, 5, 5, 5]), np.array([1.0, 1.0, 0.0, 2.0, 1.0, 0.0])
    draws = np.stack([draw_partners(relevance, queries, 0, 6, (0, v, 0)) for v in range(3000)])
    assert (draws[:, 0] == -1).all()
    for row in range(1, 6):
        others = [r for r in range(1, 6) if relevance[r] != relevance[row]]
        found, counts = np.unique(draws[:, row], return_counts=True)
        assert found.tolist() == others
        np.testing.assert_allclose(counts / 3000, 1 / len(others), atol=0.04)
    # And what one row draws says nothing about what the next one does.
    together = np.corrcoef((draws[:, 1] == 2), (draws[:, 2] == 1))[0, 1]
    assert abs(together) < 0.06


def test_each_reading_partition_and_seed_has_pairs_of_its_own():
    rows = make_data((200,), labels="relevance").read(0)
    drawn = [
        draw_partners(rows.labels[:, 0], rows.queries, 0, 200, seed)
        for seed in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    ]
    for one, other in combinations(drawn, 2):
        assert np.mean(one != other) > 0.2


@pytest.mark.parametrize("plain", [False, True])
def test_pairs_are_the_differences_of_their_rows(plain):
    rows = make_data((80,), labels="relevance", weighted=not plain).read(0)
    scale = np.random.default_rng(2).uniform(0.5, 2.0, 80).astype(np.float32)
    rows = replace(rows, values=None) if plain else replace(rows, row_scale=scale)
    pairs = pair_rows(rows, Slice(2, 0, 11, 67, False), 5, "here")
    partners = draw_partners(rows.labels[:, 0], rows.queries, 11, 67, (5, 2, 0))
    assert (partners == -1).any()
    pairs.check("the pairs")
    assert (pairs.values != 0.0).all()
    np.testing.assert_array_equal(pairs.labels, np.ones((56, 1)))
    own, other, paired = np.arange(11, 67), np.maximum(partners, 0), partners >= 0
    sign = np.sign(rows.labels[own] - rows.labels[other]) * paired[:, None]
    dense = dense_rows(rows)
    np.testing.assert_allclose(dense_rows(pairs), sign * (dense[own] - dense[other]), atol=1e-6)
    weights = np.ones(80) if rows.weights is None else rows.weights
    np.testing.assert_array_equal(pairs.weights, paired * weights[own])


@pytest.mark.parametrize("settings", [{}, {"batch_size": 32, "step_size": 0.3, "passes": 3}])
def test_a_ranking_is_learned(settings, tmp_path):
    def documents(seed):
        rng = np.random.default_rng(seed)
        dense = np.where(rng.random((900, 20)) < 0.3, rng.normal(size=(900, 20)), 0.0)
        score = dense @ np.cos(np.arange(20)) + 0.1 * rng.normal(size=900)
        relevance, queries = np.clip(np.floor(score + 2), 0, 3), np.arange(900) // 12
        return dataset_from_arrays(csr_array(dense), relevance, query=queries, partition_nnz=3_000)

    result, held_out = train(documents(0), TrainConfig(loss="ranking", **settings)), documents(1)
    scores = evaluate(result.model, held_out)
    assert scores["ndcg"] > 0.9
    assert scores["accuracy"] == 1 - scores["error"] > 0.85
    assert 0.02 < result.report["progressive_error"] < 0.3
    assert result.model.task == "ranking"
    np.testing.assert_array_equal(result.model.intercept, 0.0)
    predict(result.model, held_out, str(tmp_path / "scores.parquet"))
    table = pq.read_table(tmp_path / "scores.parquet")
    assert table.column_names == ["row", "query", "label", "score", "prediction"]
    partitions = range(len(held_out.partitions))
    expected = np.concatenate([result.model.scores(held_out.read(i))[:, 0] for i in partitions])
    np.testing.assert_array_equal(table["score"].to_numpy(), expected)
    np.testing.assert_array_equal(table["prediction"].to_numpy(), expected)


DATA = make_data((30, 17, 41), labels="relevance")


def test_data_without_queries_is_refused():
    parts = [replace(DATA.read(i), queries=None) for i in range(3)]
    plain = MemoryDataset(parts, replace(DATA.schema, queried=False))
    with pytest.raises(InputError, match=r"the data has no queries: ingest .* qid:N .* query="):
        train(plain, TrainConfig(loss="ranking"))
    model = train(DATA, TrainConfig(loss="ranking", step_size=0.3)).model
    with pytest.raises(
        InputError, match=r"has no queries, and the model is .* a table with query="
    ):
        evaluate(model, plain)
    with pytest.raises(InputError, match="here: the rows have no queries"):
        pair_rows(parts[0], Slice(0, 0, 0, 1, True), 0, "here")


def test_queries_of_single_rows_are_refused():
    parts = [replace(DATA.read(i), queries=np.arange(DATA.read(i).n_rows)) for i in range(3)]
    lonely = MemoryDataset(parts, DATA.schema)
    with pytest.raises(InputError, match="no query of memory has rows of different relevance"):
        train(lonely, TrainConfig(loss="ranking", step_size=0.3))
    model = train(DATA, TrainConfig(loss="ranking", step_size=0.3)).model
    with pytest.raises(InputError, match="no query of memory has rows of different relevance"):
        evaluate(model, lonely)


def test_queries_are_part_of_what_the_data_is(tmp_path):
    changed = [replace(DATA.read(i), queries=DATA.read(i).queries + 1) for i in range(3)]
    assert MemoryDataset(changed, DATA.schema).digest != DATA.digest
    stored = open_dataset(write_zarr(DATA, tmp_path / "data.zarr"))
    assert stored.schema.queried
    for number in range(3):
        np.testing.assert_array_equal(stored.read(number).queries, DATA.read(number).queries)
    part = DATA.read(0).slice(4, 9)
    np.testing.assert_array_equal(part.queries, DATA.read(0).queries[4:9])
    # What has no queries has the description, and so the digest, it always had.
    assert "queried" not in replace(DATA.schema, queried=False).to_json()
    assert Schema.from_json(DATA.schema.to_json()) == DATA.schema
