"""Files of arrays and tables; of Parquet as bytes and parts, for tests that spoil them."""

import io
import struct

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq


def npz(**arrays):
    sink = io.BytesIO()
    np.savez(sink, **{name: np.asarray(array) for name, array in arrays.items()})
    return sink.getvalue()


def npy(header, data=b"", version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


def make_people(n_rows=300):
    """A data frame of the names, ages and jobs of people, and whether they are rich."""
    random = np.random.default_rng(0)
    job, age = random.choice(["cook", "nurse", "clerk"], n_rows), random.normal(40, 9, n_rows)
    rich = (age + 20 * (job == "nurse") + random.normal(0, 5, n_rows)) > 50
    names = [f"p{number}" for number in range(n_rows)]
    return pandas.DataFrame(
        {"who": names, "age": age, "job": job, "rich": np.where(rich, "yes", "no")}
    )


def write_frame(frame, path):
    """The path, as text, of a file of a data frame, in the format that its suffix names."""
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False, row_group_size=4)
    elif path.suffix == ".jsonl":
        options = {"double_precision": 15, "date_format": "iso"}
        frame.to_json(path, orient="records", lines=True, **options)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return str(path)


def parquet(table, **options):
    sink = io.BytesIO()
    pq.write_table(pa.table(table), sink, **options)
    return sink.getvalue()


def split(data):
    """The bytes of a Parquet file before its footer, and the footer."""
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    return data[:start], data[start:-8]


def joined(body, footer):
    """A Parquet file of a body and a footer."""
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"
