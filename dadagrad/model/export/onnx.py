"""Export to ONNX, for runtimes in any language.

The graph is written in the text form of ONNX. A model of hashed text takes raw strings and makes
their features as `ingest` does: lower case, runs of two letters or more, n-grams, MurmurHash3, and
the sums of a row's equal features. The operators Tokenizer and MurmurHash3 are those of onnxruntime
(domain ``com.microsoft``). Any other model takes the ids and values of the features of each row,
filled up with values of 0. All numbers are float64.
"""

from __future__ import annotations

from typing import Any, BinaryIO, ClassVar

import numpy as np

from dadagrad.data.feature_space import FeatureSpace
from dadagrad.errors import InputError
from dadagrad.model.base import LinearModel
from dadagrad.model.export.base import FORMATS, Format, import_package
from dadagrad.optim.calibration import Isotonic, Platt
from dadagrad.optim.losses import MAX_LOG_MEAN, Softmax
from dadagrad.optim.registry import register

MAX_BYTES = 2**31 - 2**20
"""Bytes of a file of ONNX at most, which is a protocol buffer."""

_WORD = r"[\\pL\\pN_][\\pL\\pN_]+"

_IDS = """
    gathered = Gather (weights, ids)
    wide = Cast <to: int = 11> (gathered)
    column = Unsqueeze (values, minus_one)
    products = Mul (wide, column)
    sums = ReduceSum <keepdims: int = 0> (products, one)
"""

_WORDS = f"""
    lower = StringNormalizer <case_change_action: string = "LOWER",
        locale: string = "C.UTF-8"> (text)
    grams1 = com.microsoft.Tokenizer <mark: int = 0, pad_value: string = "", mincharnum: int = 1,
        tokenexp: string = "{_WORD}"> (lower)
    blank = Equal (grams1, empty)
    is_word = Not (blank)
    there1 = Cast <to: int = 11> (is_word)
"""

_LONGER = """
    last{n} = Slice (grams1, start{n}, end, one)
    first{n} = Slice (grams{m}, zero, minus_one, one)
    spaced{n} = StringConcat (first{n}, space)
    grams{n} = StringConcat (spaced{n}, last{n})
    there{n} = Slice (there1, start{n}, end, one)
"""

_HASHED = """
    hashes = com.microsoft.MurmurHash3 <positive: int = 0, seed: int = 0> (grams)
    signed = Cast <to: int = 7> (hashes)
    size = Abs (signed)
    feature = Mod (size, n_features)
    is_negative = Less (signed, scalar_zero)
    sign = Where (is_negative, negative_sign, positive_sign)
    entry = Mul (sign, there)
    shape = Shape (there)
    n_rows = Slice (shape, zero, one)
    n_rows_scalar = Squeeze (n_rows)
    numbers = Range (scalar_zero, n_rows_scalar, scalar_one)
    row = Unsqueeze (numbers, one)
    offset = Mul (row, n_features)
    keys = Add (offset, feature)
    flat_keys = Reshape (keys, minus_one)
    unique, first_place, place, counts = Unique <sorted: int = 1> (flat_keys)
    n_unique = Shape (unique)
    nothing = ConstantOfShape <value: tensor = double[1] {0.0}> (n_unique)
    flat = Reshape (entry, minus_one)
    summed = ScatterElements <axis: int = 0, reduction: string = "add"> (nothing, place, flat)
"""

_BINARY = """
    is_there = Greater (summed, double_zero)
    values = Cast <to: int = 11> (is_there)
"""

_BY_ROW = """
    owner = Div (unique, n_features)
    id = Mod (unique, n_features)
    gathered = Gather (weights, id)
    wide = Cast <to: int = 11> (gathered)
    column = Unsqueeze (values, one)
    products = Mul (wide, column)
    zeros_shape = Concat <axis: int = 0> (n_rows, n_outputs)
    zeros = ConstantOfShape <value: tensor = double[1] {0.0}> (zeros_shape)
    owner_column = Unsqueeze (owner, one)
    products_shape = Shape (products)
    owners = Expand (owner_column, products_shape)
    raw_sums = ScatterElements <axis: int = 0, reduction: string = "add"> (zeros, owners, products)
"""

_NORM = """
    squares = Mul (values, values)
    no_length = ConstantOfShape <value: tensor = double[1] {0.0}> (n_rows)
    length2 = ScatterElements <axis: int = 0, reduction: string = "add"> (no_length, owner, squares)
    length = Sqrt (length2)
    is_empty = Equal (length2, double_zero)
    safe_length = Where (is_empty, double_one, length)
    divisor = Unsqueeze (safe_length, one)
    sums = Div (raw_sums, divisor)
"""

_LEADS = """
    largest, largest_place = TopK <axis: int = 1> (score, two)
    best = Slice (largest, zero, one, one)
    second = Slice (largest, one, two, one)
    is_best = Equal (score, best)
    rival = Where (is_best, second, best)
    compared = Sub (score, rival)
"""

_ISOTONIC = """
    spread_score = Unsqueeze (compared, minus_one)
    beyond = Sub (spread_score, knots)
    inside = Max (beyond, double_zero)
    reached = Min (inside, widths)
    risen = Mul (reached, rises)
    rise = ReduceSum <keepdims: int = 0> (risen, minus_one)
    chance = Add (rise, begin)
"""

_SHARES = """
    total = ReduceSum <keepdims: int = 1> (chance, one)
    is_nothing = Equal (total, double_zero)
    safe_total = Where (is_nothing, double_one, total)
    share = Div (chance, safe_total)
    probability = Where (is_nothing, even_share, share)
"""


@register(FORMATS, "onnx")
class Onnx(Format):
    """A graph with the outputs ``score``, ``prediction`` and, if there are any, ``probability``.

    They have a row for each text, or row of ids, and the columns of the model.
    """

    suffix: ClassVar[str] = ".onnx"

    def make(self, model: LinearModel) -> Any:
        onnx = import_package("onnx", "the format onnx")
        is_text = model.feature_space.of_text
        if model.n_features * model.n_outputs * 4 > MAX_BYTES:
            raise InputError(
                f"{model.n_features:,} features of {model.n_outputs} outputs take more than "
                "the 2 GB of a file of ONNX; train with fewer --hash-bits, or export csv or parquet"
            )
        tensors = _tensors(model)
        body = _text_body(model.feature_space) if is_text else _IDS
        body += _prediction(model, tensors) + _probability(model, tensors)
        inputs = "string[N] text" if is_text else "int64[N, K] ids, double[N, K] values"
        kind = "double" if all(c.names is None for c in model.label_columns) else "string"
        dimensions = "[N]" if len(model.label_columns) == 1 else "[N, L]"
        outputs = f"double[N, M] score, {kind}{dimensions} prediction"
        outputs += ", double[N, C] probability" if model.has_probabilities else ""
        made = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1, "ai.onnx.ml" : 3], '
            f'producer_name: "dadagrad">\nmodel ({inputs}) => ({outputs}) {{\n{body}\n}}'
        )
        used = {name for node in made.graph.node for name in node.input}
        made.graph.initializer.extend(
            onnx.numpy_helper.from_array(array, name)
            for name, array in tensors.items()
            if name in used
        )
        onnx.checker.check_model(made)
        return made

    def write(self, model: LinearModel, file: BinaryIO) -> None:
        file.write(self.make(model).SerializeToString())


def _tensors(model: LinearModel) -> dict[str, Any]:
    """Constants of the graph by name."""
    weights = np.zeros((model.n_features, model.n_outputs), np.float32)
    weights[model.ids] = model.weights
    space = model.feature_space
    whole: dict[str, Any] = {
        "zero": [0], "one": [1], "two": [2], "minus_one": [-1], "end": [np.iinfo(np.int64).max],
        "n_features": model.n_features, "n_outputs": [model.n_outputs], "scalar_zero": 0,
        "scalar_one": 1,
    } | {f"start{n}": [n - 1] for n in range(2, space.plain.get("ngrams", 1) + 1)}  # fmt: skip
    real = {"double_zero": 0.0, "double_one": 1.0, "positive_sign": 1.0}
    return {
        "weights": weights,
        "intercept": model.intercept,
        "negative_sign": np.array(1.0 if space.binary else -1.0),
        "empty": np.array("", object),
        "space": np.array(" ", object),
        **{name: np.array(value, np.int64) for name, value in whole.items()},
        **{name: np.array(value) for name, value in real.items()},
    }


def _text_body(space: FeatureSpace) -> str:
    """Features of texts and their sums with the weights."""
    numbers = range(1, space.plain["ngrams"] + 1)
    longer = "".join(_LONGER.format(n=n, m=n - 1) for n in numbers[1:])
    joined = "".join(
        f"    {name} = Concat <axis: int = 1> ({', '.join(f'{name}{n}' for n in numbers)})\n"
        for name in ("grams", "there")
    )
    values = _BINARY if space.binary else "    values = Identity (summed)\n"
    norm = _NORM if space.norm == "l2" else "    sums = Identity (raw_sums)\n"
    return _WORDS + longer + joined + _HASHED + values + _BY_ROW + norm


def _prediction(model: LinearModel, tensors: dict[str, Any]) -> str:
    """The labels that scores stand for, as `Model.predict_labels`."""
    columns = model.label_columns
    score = "    score = Add (sums, intercept)\n"
    last = "    prediction = Squeeze (labels, one)\n" if len(columns) == 1 else (
        "    prediction = Identity (labels)\n"
    )  # fmt: skip
    if not model.has_classes:
        if model.link == "identity":
            return score + "    labels = Identity (score)\n" + last
        tensors["most"] = np.array(MAX_LOG_MEAN)
        return score + "    bounded = Min (score, most)\n    labels = Exp (bounded)\n" + last
    labels = [column.names or column.values or () for column in columns]
    kind = object if any(column.names is not None for column in columns) else np.float64
    if model.task == "multiclass":
        tensors["classes"] = np.array(labels[0], kind)
        return score + (
            "    chosen = ArgMax <axis: int = 1, keepdims: int = 0> (score)\n"
            "    prediction = Gather (classes, chosen)\n"
        )
    tensors["low"], tensors["high"] = (
        np.array([values[end] for values in labels], kind) for end in (0, -1)
    )
    return score + (
        "    is_high = Greater (score, double_zero)\n    labels = Where (is_high, high, low)\n"
        + last
    )


def _probability(model: LinearModel, tensors: dict[str, Any]) -> str:
    """Probabilities, as `Model.probabilities`."""
    calibration, several = model.calibration, model.task == "multiclass"
    if not model.has_probabilities:
        return ""
    if not calibration.is_fitted and model.loss == Softmax.name:
        return "    probability = Softmax <axis: int = 1> (score)\n"
    leads = several and calibration.is_fitted
    body = _LEADS if leads else "    compared = Identity (score)\n"
    if isinstance(calibration, Isotonic):
        knots, chances = (np.array(each) for each in (calibration.scores, calibration.chances))
        widths = np.diff(knots)
        tensors |= {"knots": knots[:-1], "widths": widths, "rises": np.diff(chances) / widths}
        tensors["begin"] = chances[0]
        body += _ISOTONIC
    else:
        fitted = calibration if isinstance(calibration, Platt) else Platt()
        tensors |= {"platt_slope": np.array(fitted.slope), "platt_offset": np.array(fitted.offset)}
        body += "    sloped = Mul (compared, platt_slope)\n    odds = Add (sloped, platt_offset)\n"
        body += "    chance = Sigmoid (odds)\n"
    if several:
        tensors["even_share"] = np.array(1.0 / model.n_outputs)
        return body + _SHARES
    if model.task == "multilabel":
        return body + "    probability = Identity (chance)\n"
    return body + (
        "    other = Sub (double_one, chance)\n"
        "    probability = Concat <axis: int = 1> (other, chance)\n"
    )
