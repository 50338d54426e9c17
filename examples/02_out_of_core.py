"""Out of core: write a corpus, ingest it, interrupt a run, resume it, and compare the bits.

    python examples/02_out_of_core.py [FOLDER]

It takes ten seconds and 60 MB of disk. Memory holds only a few partitions at a time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import dadagrad
from dadagrad.data.synthetic import Corpus
from dadagrad.training.callbacks import RoundEvent


def main(folder: Path) -> None:
    source = folder / "corpus.svm"
    Corpus(n_rows=50_000, n_features=200_000, nnz_per_row=60, seed=1).write_text(source)
    report = dadagrad.ingest(
        str(source), str(folder / "corpus"), partition_nnz=300_000, shuffle=0, overwrite=True
    )
    print(f"{report.rows} rows in {report.partitions} partitions")

    # The same run twice: once without a stop, once interrupted after a pass and resumed.
    config = dadagrad.TrainConfig(loss="logistic", step_size=0.2, l1=1e-6, passes=2)
    whole = dadagrad.train(str(folder / "corpus"), config)

    def stop_after_a_pass(event: RoundEvent) -> None:
        if event.rows > 50_000:
            raise KeyboardInterrupt

    checkpoints = str(folder / "run")
    try:
        dadagrad.train(
            str(folder / "corpus"),
            config,
            checkpoints=checkpoints,
            save_every=10_000,
            callbacks=[stop_after_a_pass],
        )
    except KeyboardInterrupt:
        print("interrupted")
    resumed = dadagrad.resume(checkpoints)

    print(f"whole   {whole.model.digest[:16]}  loss {whole.report['progressive_loss']:.4f}")
    print(f"resumed {resumed.model.digest[:16]}  loss {resumed.report['progressive_loss']:.4f}")
    assert resumed.model.digest == whole.model.digest


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))
