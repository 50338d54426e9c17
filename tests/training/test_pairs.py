"""Pairs of rows of one query: which are drawn, what their rows are, and training on them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import make_schedule_of, method_of, metrics_bytes, state_bytes
from helpers.zarr_cases import write_zarr
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.data import open_dataset
from dadagrad.data.dataset import MemoryDataset, Schema, describe_labels
from dadagrad.data.rows import Rows, query_begins
from dadagrad.errors import InputError
from dadagrad.model.evaluate import evaluate
from dadagrad.model.predict import predict
from dadagrad.problem import make_problem
from dadagrad.training import run as run_module
from dadagrad.training.checkpoints.writer import CheckpointReader
from dadagrad.training.run import TrainResult, resume, train
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice, Gradient, Weights
from dadagrad.training.worker.compute import compute, touched
from dadagrad.training.worker.pairs import draw_partners, pair_rows

N_FEATURES = 30
TRUTH = np.random.default_rng(77).normal(size=N_FEATURES)


def ranking(
    sizes: tuple[int, ...] = (30, 17, 41),
    *,
    seed: int = 0,
    query_rows: int = 6,
    weighted: bool = False,
    scaled: bool = False,
) -> MemoryDataset:
    """Queries of about `query_rows` rows, whose relevance is 0 to 3 by a noisy linear score."""
    rng = np.random.default_rng(seed)
    parts, query = [], 0
    for n_rows in sizes:
        queries = query + np.cumsum(rng.random(n_rows) < 1 / query_rows)
        query = int(queries[-1]) + 1
        chosen = rng.random((n_rows, N_FEATURES)) < 0.3
        dense = np.where(chosen, rng.normal(size=chosen.shape), 0.0).astype(np.float32)
        score = dense @ TRUTH + 0.3 * rng.normal(size=n_rows)
        relevance = np.clip(np.floor(score / 2 + 2), 0, 3)
        parts.append(
            Rows.from_csr(
                np.concatenate([[0], np.cumsum(chosen.sum(axis=1))]),
                np.nonzero(chosen)[1],
                dense[chosen],
                relevance[:, None],
                rng.uniform(0.2, 3.0, n_rows).astype(np.float32) if weighted else None,
                rng.uniform(0.5, 2.0, n_rows).astype(np.float32) if scaled else None,
                queries,
            )
        )
    labels = describe_labels(np.concatenate([rows.labels for rows in parts]), ["relevance"])
    return MemoryDataset(parts, Schema(N_FEATURES, labels, weighted, queried=True))


def dense_rows(rows: Rows) -> np.ndarray:
    dense = np.zeros((rows.n_rows, N_FEATURES))
    for r in range(rows.n_rows):
        entries = slice(rows.indptr[r], rows.indptr[r + 1])
        values = (
            np.ones(entries.stop - entries.start) if rows.values is None else rows.values[entries]
        )
        scale = 1.0 if rows.row_scale is None else rows.row_scale[r]
        dense[r, rows.vocabulary[rows.indices[entries]]] = np.float32(scale) * values
    return dense


def everything(result: TrainResult) -> tuple[object, ...]:
    end = result.coordinator
    return state_bytes(end.state), metrics_bytes(end), result.model.digest


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


def test_each_visit_partition_and_seed_has_pairs_of_its_own():
    rows = ranking((200,)).read(0)
    relevance, queries = rows.labels[:, 0], rows.queries
    drawn = [
        draw_partners(relevance, queries, 0, 200, seed)
        for seed in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    ]
    for one in range(4):
        for other in range(one):
            assert np.mean(drawn[one] != drawn[other]) > 0.3


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_pairs_are_the_differences_of_their_rows(weighted, scaled, binary):
    rows = ranking((80,), weighted=weighted, scaled=scaled).read(0)
    rows = replace(rows, values=None) if binary else rows
    slice_ = Slice(2, 0, 11, 67, False)
    pairs = pair_rows(rows, slice_, 5, "here")
    partners = draw_partners(rows.labels[:, 0], rows.queries, 11, 67, (5, 2, 0))
    assert (partners == -1).any()
    dense, found = dense_rows(rows), dense_rows(pairs)
    pairs.check("the pairs")
    np.testing.assert_array_equal(pairs.vocabulary, rows.vocabulary)
    np.testing.assert_array_equal(pairs.labels, 1.0)
    assert pairs.n_rows == 56
    assert (pairs.values != 0.0).all()
    for number, partner in enumerate(partners):
        row = 11 + number
        weight = 1.0 if rows.weights is None else rows.weights[row]
        if partner < 0:
            assert pairs.weights[number] == 0.0
            assert not found[number].any()
            continue
        sign = np.sign(rows.labels[row, 0] - rows.labels[partner, 0])
        np.testing.assert_allclose(found[number], sign * (dense[row] - dense[partner]), atol=1e-6)
        assert pairs.weights[number] == weight


@pytest.mark.parametrize("partial", [False, True])
def test_the_gradient_is_that_of_the_pairs_one_by_one(partial):
    data = ranking((60,), weighted=True)
    rows = data.read(0)
    problem = method_of(data, TrainConfig(loss="ranking", step_size=0.3, batch_size=20, seed=9))
    assert not problem.config.fit_intercept
    weights = np.random.default_rng(1).normal(scale=0.3, size=(rows.n_local, 1)).astype(np.float32)
    slice_ = Slice(3, 0, 10, 50, False)
    given = FeatureSlice(Weights(weights, np.zeros(1)))
    if partial:
        positions = np.unique(pair_rows(rows, slice_, 9, "here").indices)
        given = FeatureSlice(Weights(weights[positions], np.zeros(1)), True)
    result = compute(problem, rows, slice_, given, "here")
    assert isinstance(result.change, Gradient)
    dense = dense_rows(rows)[:, rows.vocabulary]
    expected, loss, wrong, total = np.zeros(rows.n_local), 0.0, 0.0, 0.0
    partners = draw_partners(rows.labels[:, 0], rows.queries, 10, 50, (9, 3, 0))
    for row, partner in enumerate(partners, 10):
        if partner < 0:
            continue
        more, less = (row, partner) if rows.labels[row] > rows.labels[partner] else (partner, row)
        difference, weight = dense[more] - dense[less], float(rows.weights[row])
        margin = difference @ weights[:, 0]
        if margin < 1.0:
            expected -= weight * difference
        loss += weight * max(0.0, 1.0 - margin)
        wrong += weight * (margin <= 0.0)
        total += weight
    found = np.zeros(rows.n_local)
    found[result.positions] = result.change.gradient[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert not result.change.intercept.any()
    metrics = result.metrics
    assert metrics.rows == np.count_nonzero(partners >= 0)
    np.testing.assert_allclose(
        [metrics.weight, metrics.loss[0], metrics.mistakes[0]], [total, loss, wrong]
    )


@pytest.mark.parametrize("batch_size", [1, 11])
@pytest.mark.parametrize("update", ["dual-averaging", "mirror-descent", "ftrl"])
def test_same_bits_on_any_threads_and_from_any_checkpoint(
    batch_size, update, tmp_path, monkeypatch
):
    monkeypatch.setattr(run_module, "CHUNK_ROWS", 7)
    data = ranking()
    config = TrainConfig(
        loss="ranking", update=update, batch_size=batch_size, step_size=0.3, passes=2, l1=1e-4
    )
    alone = everything(train(data, config, threads=1))
    for threads in (2, 4):
        assert everything(train(data, config, threads=threads)) == alone
    assert everything(train(data, replace(config, seed=1))) != alone
    url = write_zarr(data, tmp_path / "data.zarr")
    assert everything(train(url, config)) == alone
    folder = tmp_path / "run"
    train(url, config, checkpoints=str(folder), save_every=9, keep=1000)
    steps = sorted(info.step for info in CheckpointReader(str(folder)).list(verify=True))
    for step in steps[:: max(1, len(steps) // 3)]:
        copy = tmp_path / str(step)
        shutil.copytree(folder, copy)
        for manifest in copy.glob("manifest-*.json"):
            if int(manifest.stem.split("-")[1]) > step:
                manifest.unlink()
        assert everything(resume(str(copy))) == alone


def test_how_a_walk_is_cut_changes_nothing():
    data = ranking((60,))
    config = TrainConfig(loss="ranking", step_size=0.3, batch_size=1)
    problem = method_of(data, config)
    states = []
    for chunk_rows in (60, 7):
        state = State.zero(problem)
        for round_ in make_schedule_of(data, config, chunk_rows).rounds(start=_cursor()):
            (slice_,) = round_.slices
            compute(problem, data.read(0), slice_, state, "here")
        states.append(state_bytes(state))
    assert states[0] == states[1]


def _cursor():
    from dadagrad.training.schedule.base import Cursor

    return Cursor()


@pytest.mark.parametrize("settings", [{}, {"batch_size": 32, "step_size": 0.3, "passes": 3}])
def test_a_ranking_is_learned(settings):
    data, held_out = ranking((900, 700), query_rows=12), ranking((800,), seed=1, query_rows=12)
    result = train(data, TrainConfig(loss="ranking", **settings))
    scores = evaluate(result.model, held_out)
    assert scores["ndcg"] > 0.9
    assert scores["accuracy"] == 1 - scores["error"] > 0.85
    assert result.report["progressive_error"] < 0.2
    assert result.model.task == "ranking"
    np.testing.assert_array_equal(result.model.intercept, 0.0)


def test_scores_are_predicted(tmp_path):
    import pyarrow.parquet as pq

    data = ranking()
    model = train(data, TrainConfig(loss="ranking", step_size=0.3)).model
    out = str(tmp_path / "scores.parquet")
    predict(model, data, out)
    table = pq.read_table(out)
    assert table.column_names == ["row", "score", "prediction"]
    margins = np.concatenate([model.scores(data.read(i))[:, 0] for i in range(3)])
    np.testing.assert_array_equal(table["score"].to_numpy(), margins)
    np.testing.assert_array_equal(table["prediction"].to_numpy(), margins)


def test_data_without_queries_is_refused():
    data = ranking()
    parts = [replace(data.read(i), queries=None) for i in range(3)]
    plain = MemoryDataset(parts, replace(data.schema, queried=False))
    with pytest.raises(InputError, match=r"the data has no queries: ingest .* qid:N .* query="):
        train(plain, TrainConfig(loss="ranking"))
    model = train(data, TrainConfig(loss="ranking", step_size=0.3)).model
    with pytest.raises(InputError, match="has no queries, and the model is a ranking"):
        evaluate(model, plain)
    with pytest.raises(InputError, match="here: the rows have no queries"):
        pair_rows(parts[0], Slice(0, 0, 0, 1, True), 0, "here")


def test_two_relevances_of_a_row_are_refused():
    schema = ranking().schema
    several = replace(schema, label_columns=schema.label_columns * 2)
    with pytest.raises(InputError, match=r"the ranking loss is for one label column.* has 2"):
        make_problem(TrainConfig(loss="ranking"), several, 1)


def test_queries_of_single_rows_are_refused():
    data = ranking()
    parts = [replace(data.read(i), queries=np.arange(data.read(i).n_rows)) for i in range(3)]
    lonely = MemoryDataset(parts, data.schema)
    with pytest.raises(InputError, match="no query of memory has rows of different relevance"):
        train(lonely, TrainConfig(loss="ranking", step_size=0.3))
    model = train(data, TrainConfig(loss="ranking", step_size=0.3)).model
    with pytest.raises(InputError, match="no query of memory has rows of different relevance"):
        evaluate(model, lonely)


def test_queries_are_part_of_what_the_data_is(tmp_path):
    data = ranking()
    changed = [replace(data.read(i), queries=data.read(i).queries + 1) for i in range(3)]
    assert MemoryDataset(changed, data.schema).digest != data.digest
    stored = open_dataset(write_zarr(data, tmp_path / "data.zarr"))
    assert stored.schema.queried
    for number in range(3):
        np.testing.assert_array_equal(stored.read(number).queries, data.read(number).queries)
    part = data.read(0).slice(4, 9)
    np.testing.assert_array_equal(part.queries, data.read(0).queries[4:9])
    # What has no queries has the description, and so the digest, it always had.
    assert "queried" not in replace(data.schema, queried=False).to_json()
    assert Schema.from_json(data.schema.to_json()) == data.schema


def test_workers_of_a_cluster_get_the_weights_that_pairs_touch(tmp_path, monkeypatch):
    """Few rows touch few of many features, and their partners touch others."""
    import dask.config

    from dadagrad import clusters  # noqa: F401 (adds its defaults to the configuration)

    monkeypatch.setitem(dask.config.config["dadagrad"], "task-work", 1)
    rng = np.random.default_rng(8)
    parts = []
    for _ in range(2):
        ids = np.sort(rng.choice(5000, (120, 4)), axis=1) * 4 + np.arange(4)
        labels = rng.integers(0, 3, (120, 1)).astype(float)
        values = rng.normal(size=480).astype(np.float32)
        queries = np.repeat(np.arange(12), 10)
        parts.append(
            Rows.from_csr(np.arange(0, 481, 4), ids.ravel(), values, labels, queries=queries)
        )
    columns = describe_labels(np.concatenate([rows.labels for rows in parts]), ["relevance"])
    data = MemoryDataset(parts, Schema(20_010, columns, queried=True))
    url = write_zarr(data, tmp_path / "data.zarr")
    slice_ = Slice(0, 0, 0, 6, False)
    assert touched(parts[0], slice_) is None
    assert touched(replace(parts[0], queries=None), slice_) is not None
    config = TrainConfig(loss="ranking", step_size=0.3, batch_size=12, passes=2)
    alone = everything(train(url, config))
    assert everything(train(url, config, workers=2)) == alone
