"""Namespaces of Vowpal Wabbit's format that are crossed, ignored or chosen."""

from itertools import combinations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from dadagrad import InputError, open_dataset, train
from dadagrad.data.feature_space import hash_of_cross
from dadagrad.data.ingest import vw
from dadagrad.data.ingest.ingest import ingest, read_dataset
from dadagrad.data.reading.options import Options

BITS = 12
CROSSES = [("a", "b"), ("b", "a"), ("a", "a"), ("a", "b", "bc"), ("bc", "a", "a")]
values = st.sampled_from([1.0, 2.0, -0.5])
namespaces = st.sampled_from(["a", "b", "bc", ""])
rows = st.lists(
    st.tuples(namespaces, st.dictionaries(st.sampled_from("uvwxyz"), values, max_size=4)),
    min_size=1,
    max_size=6,
)


def line_of(row):
    words = [" ".join([name, *(f"{key}:{value}" for key, value in features.items())])
             for name, features in row]  # fmt: skip
    return "1 |" + " |".join(words) + "\n"


def bucket(name):
    return abs(murmurhash3_32(name)) & (2**BITS - 1)


def expected_row(row, crosses):
    """Values by id: of the features, and of each combination of features."""
    members = {}
    for name, features in row:
        entries = [(bucket(f"{name}^{key}" if name else key), value)
                   for key, value in features.items()]  # fmt: skip
        members.setdefault(name, []).extend(entries)
    found = [([feature], [value]) for entries in members.values() for feature, value in entries]
    for cross in crosses:
        of_cross = [
            list(combinations(members.get(name, []), cross.count(name)))
            for name in dict.fromkeys(cross)
        ]
        for chosen in product(*of_cross):
            ids, numbers = zip(*(entry for entries in chosen for entry in entries), strict=True)
            found.append((ids, numbers))
    sums = {}
    for ids, numbers in found:
        feature = ids[0] if len(ids) == 1 else hash_of_cross(ids) & (2**BITS - 1)
        sums[feature] = sums.get(feature, 0.0) + prod(numbers)
    return {feature: value for feature, value in sums.items() if value}


@given(st.lists(rows, min_size=1, max_size=5), st.lists(st.sampled_from(CROSSES), max_size=3))
def test_a_combination_is_a_feature_with_the_product_of_the_values(table, crosses):
    text = "".join(map(line_of, table)).encode()
    options = Options("vw", hash_bits=BITS, cross=tuple(dict.fromkeys(crosses)))
    block = vw.parse(text, path="a.vw", offset=0, options=options)
    for n, row in enumerate(table):
        begin, end = block.indptr[n : n + 2]
        ids, values = block.ids[begin:end].tolist(), block.values[begin:end].tolist()
        assert dict(zip(ids, values, strict=True)) == expected_row(row, dict.fromkeys(crosses))


@pytest.fixture
def clicks(tmp_path):
    """Lines whose labels depend on pairs of a user and an item alone."""
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 12, (2, 2_000))
    signs = rng.choice([-1, 1], (12, 12))[users, items]
    lines = zip(signs, users, items, strict=True)
    path = tmp_path / "a.vw"
    path.write_text("".join(f"{sign} |user u{u} |item i{i}:2\n" for sign, u, i in lines))
    return str(path)


@given(st.lists(rows, min_size=1, max_size=8))
def test_namespaces_that_are_ignored_or_not_chosen_have_no_features(table):
    lines = "".join(map(line_of, table)).encode()
    chosen = [{"ignore": ["a", "nowhere"]}, {"columns": ["b", "bc"]}]
    for options, left in zip(chosen, [("b", "bc", ""), ("b", "bc")], strict=True):
        parsed = Options("vw", hash_bits=BITS, cross=["b:bc"], **options)
        block = vw.parse(lines, path="f", offset=0, options=parsed)
        for number, row in enumerate(table):
            entries = slice(block.indptr[number], block.indptr[number + 1])
            found = dict(zip(block.ids[entries], block.values[entries], strict=True))
            kept = [(name, features) for name, features in row if name in left]
            assert found == pytest.approx(expected_row(kept, [("b", "bc")]))


def test_a_model_of_crosses_predicts_lines_and_dicts_alike(clicks):
    model = train(clicks, cross="user:item", step_size=0.5).model
    assert model.feature_space.crosses == [["user", "item"]]
    for user, item in [(0, 3), (7, 7)]:
        by_name = {f"user^u{user}": 1, f"item^i{item}": 2}
        with open(clicks, "a") as file:
            file.write(f"1 |user u{user} |item i{item}:2\n")
        lines = read_dataset(clicks, like=model, shuffle=None)
        alone = model.decision_function(by_name)
        assert alone[0] == pytest.approx(model.decision_function(lines)[-1], rel=1e-5)
    assert (model.predict(lines) == lines.read(0).labels[:, 0]).mean() > 0.95


def test_combinations_have_the_names_of_their_parts(clicks, tmp_path):
    ingest(clicks, str(tmp_path / "d"), cross=["user:item"], hash_bits=24, keep_names=True)
    names = set(open_dataset(str(tmp_path / "d")).names(np.arange(2**24)).values())
    assert {"user^u3", "item^i11", "user^u3*item^i11"} <= names
    assert len(names) == 12 + 12 + 144


@pytest.mark.parametrize(
    ("option", "value"), [("cross", "user:itm"), ("ignore", "itm"), ("columns", "user,itm")]
)
def test_an_unknown_namespace_is_named(clicks, caplog, option, value):
    read_dataset(clicks, **{option: value})
    assert f"{option}= names the namespace 'itm'" in caplog.text
    assert "they have item, user" in caplog.text


def test_later_lines_have_the_namespaces_and_crosses_of_the_first(clicks):
    crossed = read_dataset(clicks, cross="user:item")
    data = read_dataset(clicks, ignore="item", keep_names=True)
    assert {name.partition("^")[0] for name in data.names(np.arange(2**18)).values()} == {"user"}
    for first in (crossed, data):
        assert read_dataset(clicks, like=first).digest == first.digest
    with pytest.raises(InputError, match=r"cross says how features are made.*leave cross out"):
        read_dataset(clicks, like=data, cross="user:item")
    with pytest.raises(InputError, match="cross= and ignore= name the namespace 'item'"):
        read_dataset(clicks, ignore="item", cross="user:item")
    with pytest.raises(InputError, match="'item', which columns= leaves out; name it there, too"):
        read_dataset(clicks, columns="user", cross="user:item")
