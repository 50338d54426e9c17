"""The made-up corpus: its statistics, its seeds, and that text and arrays hold the same."""

import numpy as np
import pytest

from dadagrad import InputError, ingest, open_dataset
from dadagrad.data.blocks import concatenate
from dadagrad.data.dataset import checksum
from dadagrad.data.rows import Rows
from dadagrad.data.synthetic import BLOCK_ROWS, Corpus


def test_rows_are_valid_and_of_length_one():
    rows = Corpus(2000, seed=1).dataset().read(0)
    rows.check("the corpus")
    assert rows.n_rows == 2000
    assert rows.vocabulary.max() < 47_236
    norms = np.add.reduceat(rows.values.astype(float) ** 2, rows.indptr[:-1])
    assert np.abs(norms - 1).max() < 0.01
    assert set(np.unique(rows.labels)) == {-1.0, 1.0}
    assert abs(rows.labels.mean()) < 0.1


def test_seeds_parts_and_lengths():
    longer, shorter = (Corpus(BLOCK_ROWS + n, 1000, 10.0, seed=4).dataset() for n in (500, 100))
    assert longer.partitions[0] == shorter.partitions[0]
    begin, cut = longer.read(1).slice(0, 100), shorter.read(1)
    assert np.array_equal(begin.labels, cut.labels)
    assert np.array_equal(begin.vocabulary[begin.indices], cut.vocabulary[cut.indices])
    for other in (Corpus(BLOCK_ROWS, 1000, 10.0, seed=5), Corpus(BLOCK_ROWS, 1000, 10.0, 4, 1)):
        assert other.dataset().partitions[0] != longer.partitions[0]


@pytest.mark.parametrize("format", ["svmlight", "vw"])
def test_text_holds_the_same_numbers(tmp_path, format):
    corpus = Corpus(BLOCK_ROWS + 50, 300, 8.0, seed=2)
    source = tmp_path / f"corpus.{format}"
    assert corpus.write_text(source, format) == source.stat().st_size
    ingest(source, str(tmp_path / "data"), format=format, n_features=300, shuffle=None)
    rows = open_dataset(str(tmp_path / "data")).read(0)
    block = concatenate(list(corpus.blocks()))
    expected = Rows.from_csr(block.indptr, block.ids, block.values, block.labels)
    assert checksum(rows) == checksum(expected)


@pytest.mark.parametrize(
    "wrong", [{"n_rows": 0}, {"seed": -1}, {"part": -1}, {"n_features": 2}, {"nnz_per_row": 0.5}]
)
def test_wrong_parameters(wrong):
    with pytest.raises(InputError, match="a corpus needs"):
        Corpus(**({"n_rows": 10} | wrong))
