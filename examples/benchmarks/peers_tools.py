"""The tools of `peers.py`: how each learns from rows on disk, its settings, and what it predicts.

This file is also the process in which one tool runs on one set: ``peers_tools.py TOOL FOLDER``
prints a line of JSON for the setting that was chosen, and one for each order of the rows.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
Settings = dict[str, Any]
PASSES = 20  # at most, of scikit-learn's SAGA
CSR_PARTS = ("data", "indices", "indptr")
RATES = (0.25, 0.5, 2.0)
FTRL_RATES = (0.1, 0.03, 0.3, 0.01, 1.0, 0.003)
ALPHAS = (1e-6, 1e-5, 1e-4)
STRENGTHS = (1.0, 10.0, 0.1, 100.0, 0.01, 1000.0)  # of C; the likely ones first
DENSE_COLUMNS = 1000
TUNING_SHARE = 0.3  # of the limit


@dataclass(frozen=True)
class Part:
    """Rows on disk, in the form of each tool: arrays of NumPy, VW's cache, dadagrad's dataset."""

    folder: Path

    @functools.cached_property
    def x(self) -> scipy.sparse.csr_array:
        arrays = tuple(np.load(self.folder / f"{name}.npy") for name in CSR_PARTS)
        return scipy.sparse.csr_array(arrays, json.loads((self.folder / "shape.json").read_text()))

    @functools.cached_property
    def y(self) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = np.load(self.folder / "labels.npy")
        return labels

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    def size(self, form: str) -> int:
        """Bytes on disk of the "arrays", the "cache" or the "dataset"."""
        pattern = {"arrays": "*.npy", "cache": "cache", "dataset": "dataset/**/*"}[form]
        return sum(path.stat().st_size for path in self.folder.glob(pattern) if path.is_file())


@dataclass(frozen=True)
class Predictions:
    """Scores (n_rows, n_outputs), probabilities (n_rows, n_classes) if there are any, and the
    number of weights that are not zero."""

    scores: Array
    probabilities: Array | None
    n_weights: int


Fitted = Callable[[Part], Predictions]


@dataclass(frozen=True)
class Tool:
    """A tool, the package it needs, the form of its data and the settings it is tuned over."""

    name: str
    fit: Callable[..., Fitted]
    package: str = "sklearn"
    form: str = "arrays"
    settings: list[Settings] = field(default_factory=lambda: [{}])
    one_pass: bool = True
    widest: int = 1 << 62  # columns


# dadagrad


def fit_dadagrad(part: Part, **settings: Any) -> Fitted:
    from dadagrad import train

    model = train(str(part.folder / "dataset"), **settings).model

    def predict(rows: Part) -> Predictions:
        scores = model.decision_function(str(rows.folder / "dataset"))
        probabilities = model.probabilities(scores) if model.has_probabilities else None
        return Predictions(scores, probabilities, int(np.count_nonzero(model.weights)))

    return predict


# Vowpal Wabbit


def vw_flags(part: Part, folder: Path) -> list[str]:
    """The options that the cache of `folder` was made with; its text is not needed again."""
    n_columns = json.loads((part.folder / "shape.json").read_text())[1]
    bits = (n_columns * max(1, part.n_classes - 1) - 1).bit_length()  # no weights are shared
    several = ["--oaa", str(part.n_classes)] if part.n_classes > 2 else []
    data = ["--data", str(folder / "rows.vw"), "--cache_file", str(folder / "cache")]
    return [*data, "-b", str(bits), *several]


def fit_vw(part: Part, *, loss: str = "logistic", **settings: Any) -> Fitted:
    import vw

    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    flags = [word for word in flags if word != "True"]
    model = part.folder / "model.vw"
    vw.run(*vw_flags(part, part.folder), "--loss_function", loss, "-f", str(model), *flags)

    def predict(rows: Part) -> Predictions:
        readable, data = rows.folder / "readable", vw_flags(part, rows.folder)[:4]
        scores = vw.scores(model, *data, "--readable_model", str(readable))
        with open(readable) as file:
            entries = (line.partition(":")[::2] for line in file)
            values = [value.split()[0] for index, value in entries if index.isdigit()]
        n_weights = sum(float(value) != 0 for value in values)
        return Predictions(scores, of_logits(scores) if loss == "logistic" else None, n_weights)

    return predict


def of_logits(scores: Array) -> Array:
    """Probabilities of two classes, or of several that were each learned against the rest."""
    if scores.shape[1] == 1:
        return np.hstack([expit(-scores), expit(scores)])
    each = expit(scores)
    return np.asarray(each / each.sum(axis=1, keepdims=True))


# scikit-learn, and what has its interface


def from_sklearn(make: Callable[[Settings], Any]) -> Callable[..., Fitted]:
    """A fit of the estimator that `make` makes of settings."""

    def fit(part: Part, **settings: Any) -> Fitted:
        model = make(settings)
        model.fit(part.x, part.y)
        return predictions_of(model)

    return fit


def predictions_of(model: Any) -> Fitted:
    def predict(rows: Part) -> Predictions:
        scores = model.decision_function(rows.x)
        has_probabilities = hasattr(model, "predict_proba")
        n_weights = int(np.count_nonzero(model.coef_))
        scores = scores.reshape(len(rows.y), -1)
        return Predictions(
            scores, model.predict_proba(rows.x) if has_probabilities else None, n_weights
        )

    return predict


def make_sgd(settings: Settings) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(max_iter=1, tol=None, shuffle=False, **settings)


def make_saga(settings: Settings) -> Any:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore", ConvergenceWarning)
    return LogisticRegression(solver="saga", max_iter=PASSES, **settings)


def make_svc(settings: Settings) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(dual="auto", **settings)


def fit_liblinear(part: Part, *, c: float) -> Fitted:
    """L2-regularized logistic regression, solved in the dual (-s 7)."""
    from liblinear import liblinearutil

    x = scipy.sparse.csr_matrix(part.x)
    model = liblinearutil.train(part.y.astype(float), x, f"-s 7 -c {c} -B 1 -q")

    def predict(rows: Part) -> Predictions:
        order = model.get_labels()
        weights = np.array([model.get_decfun(number)[0] for number in range(len(order))])
        bias = np.array([model.get_decfun(number)[1] for number in range(len(order))])
        scores = np.empty((len(rows.y), len(order)))
        scores[:, order] = rows.x[:, : weights.shape[1]] @ weights.T + bias
        scores = scores if len(order) > 2 else scores[:, 1:]
        return Predictions(
            scores, of_logits(scores), int(np.count_nonzero(weights[scores.shape[1] == 1 :]))
        )

    return predict


# river


def fit_river(part: Part, *, rate: float) -> Fitted:
    from river import linear_model, multiclass, optim

    model: Any = linear_model.LogisticRegression(optim.AdaGrad(rate))
    if part.n_classes > 2:
        model = multiclass.OneVsRestClassifier(model)
    labels = part.y.tolist() if part.n_classes > 2 else (part.y > 0).tolist()
    for row, label in zip(as_dicts(part.x), labels, strict=True):
        model.learn_one(row, label)

    def predict(rows: Part) -> Predictions:
        by_row = [model.predict_proba_one(row) for row in as_dicts(rows.x)]
        classes = range(part.n_classes) if part.n_classes > 2 else (False, True)
        probabilities = np.array([[row.get(label, 0.0) for label in classes] for row in by_row])
        members = model.classifiers.values() if part.n_classes > 2 else [model]
        n_weights = sum(value != 0 for each in members for value in dict(each.weights).values())
        scores = probabilities if part.n_classes > 2 else probabilities[:, 1:]
        return Predictions(scores, probabilities, n_weights)

    return predict


def as_dicts(x: scipy.sparse.csr_array) -> Iterator[dict[int, float]]:
    for first, last in zip(x.indptr[:-1], x.indptr[1:], strict=True):
        span = slice(first, last)
        yield dict(zip(x.indices[span].tolist(), x.data[span].tolist(), strict=True))


# dask-ml


def fit_incremental(part: Part, **settings: Any) -> Fitted:
    """scikit-learn's SGD over the blocks of a Dask array."""
    from dask_ml.wrappers import Incremental

    model = Incremental(make_sgd(settings), shuffle_blocks=False)
    x, y = as_dask(part)
    model.fit(x, y, classes=list(range(part.n_classes)))
    return predictions_of(model.estimator_)


def as_dask(part: Part, blocks: int = 16) -> tuple[Any, Any]:
    """Rows in blocks: sparse matrices, and labels."""
    import dask.array as da

    y = da.from_array(part.y, chunks=-(-len(part.y) // blocks))
    starts = np.append(0, np.cumsum(y.chunks[0]))
    pieces = [
        da.from_array(scipy.sparse.csr_matrix(part.x[first:last]), chunks=-1, asarray=False)
        for first, last in itertools.pairwise(starts)
    ]
    return da.concatenate(pieces), y


def fit_dask_glm(part: Part, **settings: Any) -> Fitted:
    """dask-glm's L-BFGS, which takes dense blocks alone."""
    from dask_ml.linear_model import LogisticRegression

    x, y = as_dask(part, 4)
    dense = x.map_blocks(lambda block: block.toarray(), dtype=np.float32, meta=np.zeros((0, 0)))
    model = LogisticRegression(solver="lbfgs", **settings).fit(dense, y)

    def predict(rows: Part) -> Predictions:
        scores = (rows.x @ model.coef_ + model.intercept_).reshape(-1, 1)
        return Predictions(scores, of_logits(scores), int(np.count_nonzero(model.coef_)))

    return predict


SGD_SETTINGS = [
    {"loss": loss, "alpha": alpha, "average": average}
    for loss, average in (("hinge", False), ("log_loss", True))
    for alpha in ALPHAS
]
C_SETTINGS = [{"C": strength} for strength in STRENGTHS]
TOOLS = (
    Tool("dadagrad, defaults", fit_dadagrad, "dadagrad", "dataset"),
    Tool("dadagrad", fit_dadagrad, "dadagrad", "dataset", [
        {"loss": loss, "step_size": step_size, "average": average}
        for loss in ("hinge", "logistic")
        for step_size, average in ((0.4, False), (0.8, False), (1.6, True))
    ]),
    Tool("dadagrad, mirror descent", fit_dadagrad, "dadagrad", "dataset", [
        {"update": "mirror-descent", "loss": loss, "step_size": step_size, "average": average}
        for loss in ("hinge", "logistic")
        for step_size, average in ((0.4, False), (0.8, False), (0.8, True))
    ]),
    Tool("dadagrad, FTRL", fit_dadagrad, "dadagrad", "dataset", [
        {"update": "ftrl", "preconditioner": "diagonal:delta=1", "loss": "logistic",
         "average": False, "step_size": rate}
        for rate in FTRL_RATES
    ]),
    Tool("VW, adaptive", fit_vw, "vowpalwabbit", "cache", [
        {"loss": loss, "learning_rate": rate} for loss in ("hinge", "logistic") for rate in RATES
    ]),
    Tool("VW, FTRL", fit_vw, "vowpalwabbit", "cache", [
        {"ftrl": True, "ftrl_alpha": rate} for rate in FTRL_RATES
    ]),
    Tool("VW, coin", fit_vw, "vowpalwabbit", "cache", [
        {"coin": True, "loss": loss, "ftrl_alpha": rate}
        for loss in ("hinge", "logistic") for rate in (1.0, 4.0, 16.0)
    ]),
    Tool("scikit-learn, SGDClassifier", from_sklearn(make_sgd), settings=SGD_SETTINGS),
    Tool("dask-ml, Incremental(SGD)", fit_incremental, "dask_ml", settings=SGD_SETTINGS),
    Tool("river, AdaGrad", fit_river, "river", settings=[
        {"rate": rate} for rate in (0.1, 0.3, 0.03, 1.0, 0.01, 3.0)
    ]),
    Tool("scikit-learn, saga", from_sklearn(make_saga), settings=C_SETTINGS, one_pass=False),
    Tool("scikit-learn, LinearSVC", from_sklearn(make_svc), settings=C_SETTINGS, one_pass=False),
    Tool("LIBLINEAR, logistic", fit_liblinear, "liblinear",
         settings=[{"c": strength} for strength in STRENGTHS], one_pass=False),
    Tool("dask-ml, LogisticRegression", fit_dask_glm, "dask_ml", settings=C_SETTINGS,
         one_pass=False, widest=DENSE_COLUMNS),
)  # fmt: skip


# One tool on one set


def main(name: str, folder: Path, limit: float) -> None:
    """Tune on the prefix, and learn from the rows in each order; one line of JSON each.

    The operating system ends the process after `limit` seconds of CPU time.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 9))  # SIGXCPU, SIGKILL
    (tool,) = (tool for tool in TOOLS if tool.name == name)
    chosen, n_tried = tune(tool, folder / "tuning", TUNING_SHARE * limit)
    print(json.dumps({"settings": chosen, "n_tried": n_tried}), flush=True)
    test = Part(folder / "test")
    for order in sorted(folder.glob("order-*")):
        wall, cpu, part = time.perf_counter(), time.process_time(), Part(order)
        predict = tool.fit(part, **chosen)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak, predicted = measuring.peak_memory(), predict(test)
        n_outputs = predicted.scores.shape[1]
        n_columns = len(np.unique(part.x.indices)) * n_outputs
        measured = {"seconds": wall, "cpu": cpu, "peak": peak, "disk": part.size(tool.form),
                    "non_zero": predicted.n_weights / n_columns}  # fmt: skip
        print(json.dumps(measured | quality(predicted, test.y)), flush=True)


def tune(tool: Tool, folder: Path, limit: float) -> tuple[Settings, int]:
    """The setting with the least error, and of equal ones the least log loss; and how many were
    tried before the limit of seconds."""
    judge, tried, begun = Part(folder / "judge"), [], time.process_time()
    for number, settings in enumerate(tool.settings):
        if tried and time.process_time() - begun > limit:
            break
        metrics = quality(tool.fit(Part(folder / "learn"), **settings)(judge), judge.y)
        tried.append((metrics["error"], metrics.get("log_loss", np.inf), number))
    return tool.settings[min(tried)[2]], len(tried)


def quality(predicted: Predictions, y: NDArray[np.int64]) -> dict[str, float]:
    """Error, area under the ROC curve (each class against the rest, in the mean), log loss."""
    from sklearn.metrics import log_loss, roc_auc_score

    scores, classes = predicted.scores, range(max(2, predicted.scores.shape[1]))
    several = scores.shape[1] > 1
    labels = scores.argmax(axis=1) if several else (scores[:, 0] > 0).astype(int)
    if predicted.probabilities is not None:
        labels = predicted.probabilities.argmax(axis=1)
    areas = [
        roc_auc_score(y == label, scores[:, label] if several else scores[:, 0])
        for label in (classes if several else [1])
    ]
    metrics = {"error": float(np.mean(labels != y)), "auc": float(np.mean(areas))}
    if predicted.probabilities is not None:
        metrics["log_loss"] = float(log_loss(y, predicted.probabilities, labels=list(classes)))
    return metrics


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
