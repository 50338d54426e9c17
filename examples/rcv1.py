"""Reuters RCV1, the standard corpus of sparse online learning: classify stories about business.

    python examples/rcv1.py FOLDER [--train-on-large]

Fetch the corpus with scikit-learn (about 650 MB, once; this needs the internet), ingest it into
FOLDER, train, and evaluate. Lewis, Yang, Rose and Li (2004) split it into 23,149 stories for
training and 781,265 later ones for the test; --train-on-large swaps the two, as most measurements
of speed do. The label is the category CCAT.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import dadagrad

CATEGORY = "CCAT"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="folder for the datasets and the model")
    parser.add_argument("--train-on-large", action="store_true", help="swap the two parts")
    parser.add_argument("--passes", type=int, default=1)
    options = parser.parse_args(arguments)

    options.folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        if not (options.folder / part).exists():
            report = make_dataset(part, options.folder)
            print(f"{part}: {report.rows:,} rows, {report.nnz:,} non-zeros")

    train, test = ("test", "train") if options.train_on_large else ("train", "test")
    config = dadagrad.TrainConfig(loss="hinge", passes=options.passes)
    result = dadagrad.train(str(options.folder / train), config)
    result.model.save(options.folder / "model")
    print(
        f"trained on {result.report['rows']:,} rows in {result.report['seconds']:.2f} s, "
        f"{result.report['nnz_per_second'] / 1e6:.0f} million non-zeros a second, "
        f"step size {result.report['step_size']:g}; progressive error "
        f"{result.report['progressive_error']:.4f}"
    )
    measured = dadagrad.evaluate(result.model, str(options.folder / test))
    print(
        f"on {measured['rows']:,} other rows: error {measured['error']:.4f}, "
        f"AUC {measured['auc']:.4f}"
    )


def make_dataset(part: str, folder: Path) -> Any:
    """Fetch one part of the corpus and ingest it, in random order, into `folder`."""
    from sklearn.datasets import fetch_rcv1

    try:
        corpus = fetch_rcv1(subset=part)
    except OSError as error:
        sys.exit(
            f"rcv1.py: cannot fetch RCV1: {error}; it needs the internet the first time (later "
            "it is in ~/scikit_learn_data); `dadagrad demo` trains on a synthetic corpus"
        )
    column = list(corpus.target_names).index(CATEGORY)
    about = corpus.target[:, [column]].toarray()[:, 0]
    arrays = folder / f"{part}.npz"
    scipy.sparse.save_npz(arrays, corpus.data.tocsr(), compressed=False)
    np.save(folder / f"{part}.labels.npy", np.where(about, 1.0, -1.0))
    report = dadagrad.ingest(arrays, str(folder / part), shuffle=0)
    arrays.unlink()
    return report


if __name__ == "__main__":
    main()
