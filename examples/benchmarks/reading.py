"""Reading: the project's decoder of chunks compared with zarr-python.

Both read and check all arrays that training needs, from the page cache. The last column is
the time as a share of a training pass. The decoder of ``dadagrad/data/zarr/codec.py``
is justified as long as it saves more than 10 % of a pass.
"""

from __future__ import annotations

import warnings

import numpy as np
import reporting
import zarr
from crc32c import crc32c
from measuring import seconds_of
from memory import prepare
from zarr.buffer import cpu

from dadagrad import TrainConfig, open_dataset, train
from dadagrad.data.synthetic import Corpus

ARRAYS = ("X/data", "X/indices", "X/indptr", "obs/label", "var/feature")


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    folder = prepare(options.folder, Corpus(options.rows))
    data = open_dataset(str(folder))
    numbers = range(len(data.partitions))

    def decoder() -> None:
        for number in numbers:
            data.read(number)

    def zarr_python() -> None:
        for partition in data.partitions:
            root, chunks = folder / partition.name, {}
            for path in ("", *ARRAYS):
                for file in (root / path).glob("zarr.json" if not path else "c/*"):
                    content = file.read_bytes()
                    crc32c(content)
                    chunks[str(file.relative_to(root))] = cpu.Buffer.from_bytes(content)
            group = zarr.open_group(zarr.storage.MemoryStore(chunks), mode="r")
            arrays = {path: group[path][:] for path in ARRAYS}
            assert np.isfinite(arrays["X/data"]).all()
            assert arrays["X/indices"].view(np.uint32).max() < partition.n_local

    def training() -> None:
        train(data, TrainConfig(step_size=0.2))

    warnings.filterwarnings("ignore", "Numcodecs codecs")  # of zarr-python, about decimals
    training()  # compiles
    calls = (decoder, zarr_python, training)
    # In turn, and the fastest of each: whatever else the machine does hits all of them.
    rounds = [[seconds_of(call) for call in calls] for _ in range(options.repeats)]
    seconds = [min(times) for times in zip(*rounds, strict=True)]
    names = ("decoder", "zarr-python", "training pass, with the decoder")
    rows = [
        [name, f"{1e3 * spent:.1f}", f"{spent / seconds[-1]:.0%}"]
        for name, spent in zip(names, seconds, strict=True)
    ]
    text = reporting.table(["", "milliseconds", "share of a pass"], rows)
    reporting.publish("reading", text, options.markdown)


if __name__ == "__main__":
    main()
