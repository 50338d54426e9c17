"""Hostile text: numbers, names and quotes that no parser expects."""

import numpy as np
import pytest
from helpers.hostile_cases import CORPUS, only_our_errors
from helpers.line_formats import TOKENS
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import DadagradError, InputError, evaluate, ingest, open_dataset, predict, train
from dadagrad.data.ingest import vw
from dadagrad.data.reading.options import Options
from dadagrad.data.tables.delimited import cut_at_rows
from dadagrad.data.tables.formats import TextOpener

CSV = b'label,a,b\n1,2,3\n0,,1e3\n1,"4",5\n'
TABLES = {
    "a.csv": CSV,
    "a.tsv": CSV.replace(b",", b"\t"),
    "a.jsonl": b'{"label":1,"a":2,"b":"x"}\n{"label":0,"b":"y","a":1e3}\n',
}
DEEP = b"[" * 20_000  # Arrow's reader of JSON would end the process


SOURCES = {
    "a.csv": b"label,a,b\n" + b"1,2,red\n0,3,blue\n" * 10,
    "a.tsv": b"pos\tgood words\nneg\tbad words\n" * 10,
    "a.jsonl": b'{"label":1,"a":2,"b":["x","y"]}\n{"label":0,"a":3,"b":[]}\n' * 10,
    "a.svm": b"1 1:1\n0 2:1\n" * 10,
    "a.vw": b"1 'first| a b:2\n-1 | c\n" * 10,
}


@st.composite
def spoilt(draw, tables=TABLES):
    """A name and a table, some bytes of which are replaced by tokens that are hard to parse."""
    name = draw(st.sampled_from(sorted(tables)))
    out = bytearray(tables[name])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(out)))
        size = draw(st.sampled_from([0, 0, 1, 3, 8]))
        out[at : at + size] = draw(st.sampled_from([*TOKENS, DEEP]) | st.binary(max_size=3))
    return name, bytes(out)


@given(spoilt(), st.sampled_from(["raise", "skip"]))
def test_spoilt_tables_give_sound_blocks_or_an_input_error(table, on_error):
    name, data = table
    layout = {"format": "jsonl"}
    if name != "a.jsonl":
        layout = {"format": "csv", "header": True, "delimiter": "," if "csv" in name else "\t"}
    with only_our_errors():
        options = Options(**layout, hash_bits=5, on_error=on_error)
        parse, _ = TextOpener(options).open(name, data)
        chunks = cut_at_rows(name, [(data, 0)], parse.delimiter) if parse.quoted else [(data, 0)]
        for chunk, offset in chunks:
            block = parse.encoder.finish(parse(chunk, path=name, offset=offset))
            assert (np.diff(block.indptr, prepend=0) >= 0).all()
            assert block.indptr[-1] == len(block.ids)
            assert not block.nnz or block.ids.min() >= 0
            assert block.values is None or np.isfinite(block.values).all()
            assert block.labels.dtype == object or np.isfinite(block.labels).all()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder, and a model of each of `SOURCES`."""
    folder = tmp_path_factory.mktemp("models")
    for name, data in SOURCES.items():
        (folder / name).write_bytes(data)
    return folder, {name: train(folder / name, step_size=0.1).model for name in SOURCES}


@given(spoilt(SOURCES), st.sampled_from(["raise", "skip"]))
def test_a_model_answers_spoilt_rows_or_refuses_them(models, source, on_error):
    folder, trained = models
    name, data = source
    spoilt_file, out = folder / f"spoilt-{name}", folder / "out.csv"
    spoilt_file.write_bytes(data)
    out.unlink(missing_ok=True)
    with only_our_errors():
        evaluate(trained[name], spoilt_file, on_error=on_error)
    try:
        with only_our_errors(False):
            predict(trained[name], spoilt_file, str(out), on_error=on_error)
    except DadagradError:
        assert not out.exists()


BROKE = {
    # Python refuses to convert more than 4,300 digits, zeros in front included.
    "zeros.svm": "line 2: feature '0{40}'... comes after '7'",
    # In memory every tag had the width of the longest: these few took 400 GB.
    "tag.vw": "line 20001: tag is .'tttt.*it must have 256 bytes or less",
    # The whole cell was in the message.
    "cell.csv": r"line 3: column 'a' holds '9{60}'\.\.\.; the first rows have finite numbers",
    "name.csv": r"line 22: column 'n{60}'\.\.\. holds 'red'; the first rows have finite numbers",
    "label.tsv": r"line 2: the label, column 0 counted from 0, is 9{60}; every row",
    # Its header asks for 4 GB.
    "dictionary.svm.xz": "the compressed data are damaged .*emory usage limit",
    # The message had several lines.
    "newline.csv": r"column 'a\\nb' holds 'red'",
}


@pytest.mark.parametrize("name", BROKE)
def test_files_that_broke_a_reader_once(name, tmp_path):
    with pytest.raises(InputError, match=BROKE[name]), only_our_errors(False):
        ingest(CORPUS / name, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("length", [255, 256])
def test_only_long_tags_are_skipped(length):
    data = b"1 | 1\n1 '" + b"t" * length + b"| 1\n0 | 1\n"
    block = vw.parse(data, path="a.vw", offset=0, options=Options("vw", on_error="skip"))
    assert (block.n_rows, block.skipped) == ((3, 0) if length == 255 else (2, 1))


TEXTS = {
    "a.svm": "1 1:1\n0 2:1 # é\n",
    "a.vw": "1 | 1\n0 'é| 2\n",
    "a.csv": "label,é\n1,2\n0,3\n",
    "a.tsv": "1\tgood dáy\n0\tbad day\n",
    "a.jsonl": '{"label": 1, "x": "é"}\n{"label": 0, "x": "e"}\n',
}


@pytest.mark.parametrize("name", TEXTS)
def test_other_encodings_are_read_whole_or_refused(name, tmp_path):
    text, file, out = TEXTS[name], tmp_path / name, str(tmp_path / "out")
    for data, refusal in (
        (text.encode("utf-8-sig"), None),
        # Texts must be UTF-8; comments, tags and names of columns need not be.
        (text.encode("latin-1"), "not UTF-8 text" if name in ("a.tsv", "a.jsonl") else None),
        (text.encode("utf-16"), "is UTF-16"),
        (text.encode("utf-32"), "is UTF-32"),
        (text.replace("\n", "\r").encode(), "its lines end in CR alone"),
    ):
        file.write_bytes(data)
        if refusal is None:
            ingest(file, out, overwrite=True)
            assert open_dataset(out).n_rows == 2
        else:
            with pytest.raises(InputError, match=f"{refusal}; convert the file"):
                ingest(file, out, overwrite=True)
