"""``examples/rcv1.py`` on a synthetic corpus with the interface of scikit-learn's RCV1."""

import runpy
from pathlib import Path

import numpy as np
import scipy.sparse
import sklearn.datasets
from sklearn.utils import Bunch

from dadagrad.data.synthetic import Corpus

SCRIPT = Path(__file__).parents[2] / "examples" / "rcv1.py"


def fetch(*, subset):
    """A small substitute for ``fetch_rcv1``."""
    sizes = {"train": 3000, "test": 1000}
    corpus = Corpus(sizes[subset], 2000, 30.0, part=int(subset == "test"))
    (block,) = corpus.blocks()
    positive = np.asarray(block.labels)[:, 0] > 0
    target = np.stack([~positive, positive], axis=1).astype(np.uint8)
    return Bunch(
        data=scipy.sparse.csr_matrix(
            (block.values, block.ids, block.indptr), (block.n_rows, 2000), dtype=np.float64
        ),
        target=scipy.sparse.csr_matrix(target),
        target_names=np.array(["C11", "CCAT"], dtype=object),
    )


def test_rcv1(tmp_path, monkeypatch, capsys):
    main = runpy.run_path(str(SCRIPT))["main"]
    monkeypatch.setattr(sklearn.datasets, "fetch_rcv1", fetch)
    main([str(tmp_path)])
    shown = capsys.readouterr().out
    assert "train: 3,000 rows" in shown
    assert "on 1,000 other rows: error 0." in shown
    main([str(tmp_path), "--train-on-large", "--passes", "2"])
    assert "trained on 2,000 rows" in capsys.readouterr().out
