"""A user's own losses, regularizers and preconditioners."""

import pickle
from dataclasses import dataclass

import numba
import numpy as np
import pytest
from helpers.processes import local_cluster
from helpers.training_cases import N_FEATURES, interrupt_at, make_data
from helpers.zarr_cases import write_zarr

import dadagrad
from dadagrad import InputError, TrainingError
from dadagrad.optim.preconditioners import Diagonal, DiagonalPreconditioner, Full
from dadagrad.optim.updates import DualAveraging
from dadagrad.problem import make_problem


class OwnHinge(dadagrad.Loss):
    """The squared hinge loss in NumPy."""

    def value(self, scores, labels):
        return 0.5 * np.maximum(0.0, 1.0 - labels * scores) ** 2

    def slope(self, scores, labels):
        return -labels * np.maximum(0.0, 1.0 - labels * scores)


class CompiledHinge(OwnHinge):
    @staticmethod
    @numba.njit
    def slope(score, label):
        return -label * max(0.0, 1.0 - label * score)


class OwnSoftmax(dadagrad.Loss):
    task = "multiclass"

    def value(self, scores, labels):
        right = np.where(labels > 0, scores, 0.0).sum(axis=-1)
        return np.log(np.exp(scores).sum(axis=-1)) - right

    def slope(self, scores, labels):
        shares = np.exp(scores)
        return shares / shares.sum(axis=-1, keepdims=True) - (labels > 0)


@dataclass(frozen=True)
class OwnL1(dadagrad.Regularizer):
    strength: float

    def value(self, weights):
        return self.strength * np.abs(weights).sum()

    def prox(self, center, curvature, scale):
        safe = np.where(curvature > 0, curvature, 1.0)
        shrunk = np.maximum(np.abs(center) - scale * self.strength / safe, 0.0)
        return np.where(curvature > 0, np.copysign(shrunk, center), 0.0)


class OwnDiagonal(DiagonalPreconditioner):
    """AdaGrad's preconditioner with delta = 1e-6."""

    def init(self, n_features, n_outputs=None):
        return {"squares": np.zeros((n_features, n_outputs))}

    def add(self, arrays, step):
        rows = slice(None) if step.ids is None else step.ids
        arrays["squares"][rows] += step.gradient**2
        return arrays

    def curvature(self, arrays, ids=None):
        rows = slice(None) if ids is None else ids
        return 1e-6 + np.sqrt(arrays["squares"][rows])


class OwnFull(Full):
    """The full preconditioner, as a class of its own."""


PAIRS = {
    "loss": ({"loss": OwnHinge()}, {"loss": "squared-hinge"}),
    "compiled loss": ({"loss": CompiledHinge()}, {"loss": "squared-hinge"}),
    "loss of all classes": ({"loss": OwnSoftmax()}, {"loss": "softmax"}),
    "regularizer": ({"regularizer": OwnL1(1e-4)}, {"l1": 1e-4}),
    "preconditioner": ({"preconditioner": OwnDiagonal()}, {"preconditioner": "diagonal"}),
}
OTHERS = [{"batch_size": 1}, {"batch_size": 20, "update": "mirror-descent"}]


def data_of(name):
    labels = "multiclass" if name == "loss of all classes" else "binary"
    return make_data((60, 60), labels=labels, seed=1)


@pytest.mark.parametrize("settings", OTHERS, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_an_own_object_trains_as_the_built_in_one(name, settings):
    """Steps that follow the loss are for built-in objects alone."""
    data, plain = data_of(name), {"step_size": 0.2, "passes": 2, "importance_aware": False}
    own, built_in = (
        dadagrad.train(data, **plain, **settings, **objects) for objects in PAIRS[name]
    )
    assert own.report["progressive_loss"] == pytest.approx(
        built_in.report["progressive_loss"], rel=1e-5
    )
    np.testing.assert_allclose(own.model.weights, built_in.model.weights, rtol=2e-4, atol=2e-6)


class DoubleDiagonal(Diagonal):
    """Twice the built-in preconditioner, which halves the steps."""

    def curvature(self, arrays, ids=None):
        return 2.0 * super().curvature(arrays, ids)


class HalfSteps(DualAveraging):
    """Dual averaging with half of each gradient's weight."""

    def weights(self, state, ids=None):
        return 0.5 * super().weights(state, ids)


@pytest.mark.parametrize("batch_size", [1, 20])
@pytest.mark.parametrize(
    "objects", [{"preconditioner": DoubleDiagonal()}, {"update": HalfSteps()}], ids=str
)
def test_a_class_derived_from_a_built_in_one_runs_its_own_formulas(objects, batch_size):
    data = data_of("loss")
    settings = {"batch_size": batch_size, "fit_intercept": False, "importance_aware": False}
    own = dadagrad.train(data, step_size=0.4, **settings, **objects)
    half = dadagrad.train(data, step_size=0.2, **settings)
    np.testing.assert_allclose(own.model.weights, half.model.weights, rtol=2e-3, atol=1e-5)


class BareUpdate(dadagrad.Update):
    """Neither of gradients nor of rows."""

    def init(self, n_features, n_outputs):
        return None

    shapes = weights = init


def test_an_update_that_takes_neither_gradients_nor_rows_is_refused():
    with pytest.raises(InputError, match="takes neither gradients nor rows; derive its class from"):
        dadagrad.TrainConfig(update=BareUpdate())


@pytest.mark.parametrize("name", PAIRS)
def test_an_own_object_resumes_when_it_is_given_again(name, tmp_path):
    data, (objects, _) = data_of(name), PAIRS[name]
    settings = {"step_size": 0.2, "batch_size": 10, "passes": 2}
    whole = dadagrad.train(data, **settings, **objects)
    folder, stop = str(tmp_path / "run"), [interrupt_at(60)]
    stopped = dadagrad.train(data, checkpoints=folder, callbacks=stop, **settings, **objects)
    assert not stopped.complete
    with pytest.raises(InputError, match="is not known; choose one of"):
        dadagrad.resume(folder, data=data)
    with pytest.raises(InputError, match="was given, and the run has"):
        dadagrad.resume(folder, data=data, **{**objects, "update": "ftrl"})
    resumed = dadagrad.resume(folder, data=data, **objects)
    assert resumed.model.digest == whole.model.digest


def test_an_own_object_may_have_an_array_as_a_parameter(tmp_path):
    data, strengths = data_of("loss"), np.linspace(0.0, 1e-2, N_FEATURES)[:, None]
    settings = {"step_size": 0.2, "batch_size": 10, "checkpoints": str(tmp_path)}
    first = dadagrad.train(data, regularizer=OwnL1(strengths), **settings)
    with pytest.raises(InputError, match="was given, and the run has regularizer 'OwnL1:strength="):
        dadagrad.resume(str(tmp_path), data=data, regularizer=OwnL1(2 * strengths))
    resumed = dadagrad.resume(str(tmp_path), data=data, regularizer=OwnL1(strengths))
    assert resumed.model.digest == first.model.digest


@pytest.fixture(scope="module")
def two_workers():
    with local_cluster(2, processes=False) as cluster:
        yield cluster.scheduler_address


@pytest.mark.parametrize("name", ["loss", "compiled loss", "regularizer"])
def test_an_own_object_has_the_same_bits_on_a_cluster(name, two_workers, tmp_path):
    url = write_zarr(data_of(name), tmp_path / "data")
    settings = {"step_size": 0.2, "batch_size": 20, **PAIRS[name][0]}
    here = dadagrad.train(url, **settings)
    there = dadagrad.train(url, client=two_workers, **settings)
    assert there.model.digest == here.model.digest


def test_a_problem_is_pickled_without_its_compiled_functions():
    config = dadagrad.TrainConfig(loss=CompiledHinge(), step_size=0.1)
    problem = make_problem(config, data_of("loss").schema, 1)
    assert problem.kernel_targets.loss is not None
    assert pickle.loads(pickle.dumps(problem)).config.loss.name == "CompiledHinge"


def test_a_model_of_an_own_loss_is_evaluated_with_the_loss():
    data = data_of("loss")
    model = dadagrad.train(data, loss=OwnHinge(), step_size=0.2).model
    with pytest.raises(InputError, match="loss 'OwnHinge' is not known"):
        dadagrad.evaluate(model, data)
    expected = dadagrad.evaluate(model, data, loss="squared-hinge")["loss"]
    assert dadagrad.evaluate(model, data, loss=OwnHinge())["loss"] == pytest.approx(expected)


class OwnRanking(dadagrad.Loss):
    """The logistic loss of the difference of two rows."""

    task = "ranking"

    def value(self, scores, labels):
        return np.logaddexp(0.0, -scores)

    def slope(self, scores, labels):
        return -1.0 / (1.0 + np.exp(scores))


def test_a_ranking_is_evaluated_with_the_loss_of_all_pairs_of_a_query():
    data = make_data((60, 60), labels="relevance", seed=1)
    result = dadagrad.train(data, loss=OwnRanking(), step_size=0.2)
    with pytest.raises(InputError, match="loss 'OwnRanking' is not known"):
        dadagrad.evaluate(result.model, data)
    losses = []
    for rows in map(data.read, range(2)):
        scores, relevance = result.model.scores(rows)[:, 0], rows.labels[:, 0]
        for query in np.unique(rows.queries):
            ours = rows.queries == query
            is_pair = relevance[ours, None] > relevance[ours]
            if is_pair.any():
                margins = (scores[ours, None] - scores[ours])[is_pair]
                losses.append(np.logaddexp(0.0, -margins).mean())
    found = dadagrad.evaluate(result.model, data, loss=OwnRanking())["loss"]
    assert found == pytest.approx(np.mean(losses))


class OwnPoisson(dadagrad.Loss):
    task, link = "regression", "log"

    def value(self, scores, labels):
        return np.exp(scores) - labels * scores

    def slope(self, scores, labels):
        return np.exp(scores) - labels


def test_scores_of_an_own_loss_mean_what_its_link_says(tmp_path):
    data = make_data(labels="real")
    for index in range(len(data.partitions)):
        data.read(index).labels[:] = np.abs(data.read(index).labels)
    own, built_in = (
        dadagrad.train(data, loss=loss, step_size=0.1) for loss in (OwnPoisson(), "poisson")
    )
    expected = built_in.model.predict(data)
    assert (expected > 0.0).all()
    own.save(str(tmp_path))
    for model in (own.model, dadagrad.Model.load(str(tmp_path))):
        np.testing.assert_allclose(model.predict(data), expected, rtol=1e-3)


def test_a_link_that_is_not_known_is_refused_before_training():
    class Probit(OwnHinge):
        link = "probit"

    with pytest.raises(InputError, match="the link of Probit is 'probit'"):
        dadagrad.train(data_of("loss"), loss=Probit(), step_size=0.1)


def altered(owner, **members):
    """An object of a class derived from that of `owner`, with other members."""
    return type("Wrong", (type(owner),), members)(*vars(owner).values())


LOSS, L1 = OwnHinge(), OwnL1(1e-3)
WRONG = [
    (LOSS, {"slope": lambda self, scores, labels: -1.0}, r"slope of Wrong is a float .*\(2, 1\)"),
    (LOSS, {"slope": lambda self, scores, labels: scores[0]}, r"is an array of shape \(1,\) for"),
    (LOSS, {"value": lambda self, scores, labels: 0.5}, "the value of Wrong is a float for scores"),
    (OwnSoftmax(), {"value": lambda self, scores, labels: scores}, r"return .* shape \(2,\)"),
    (LOSS, {"task": "classes"}, "the task of Wrong is 'classes'; it must be one of"),
    (L1, {"prox": lambda self, *arguments: None}, r"a NoneType for a center of shape \(60, 1\)"),
    (L1, {"couples": "rows"}, "Wrong couples 'rows'; it must be one of"),
    (OwnDiagonal(), {"add": lambda self, *arguments: None}, "the add of Wrong is a NoneType"),
    (
        OwnDiagonal(),
        {"init": lambda self, *sizes: np.zeros(sizes)},
        "the init of Wrong is a ndarray",
    ),
    (
        OwnDiagonal(),
        {"curvature": lambda self, arrays, ids=None: np.full((60 if ids is None else 1, 1), -1.0)},
        r"the curvature of Wrong is -1.0 after a gradient of 0; return numbers of at least 0",
    ),
    (
        OwnDiagonal(),
        {"curvature": lambda self, arrays, ids=None: arrays["squares"]},
        r"the curvature of Wrong is .* \(60, 1\) for one id and a vector of shape \(60, 1\)",
    ),
    (
        OwnFull(),
        {"solve": lambda self, arrays, vector, ids=None: vector[:3]},
        r"the solve of Wrong is an array of shape \(3, 1\) for a vector of shape \(60, 1\)",
    ),
]


def test_a_wrong_own_object_is_refused_before_training():
    bases = {
        "loss": dadagrad.Loss,
        "regularizer": dadagrad.Regularizer,
        "preconditioner": dadagrad.Preconditioner,
    }
    for owner, members, message in WRONG:
        (kind,) = (name for name, base in bases.items() if isinstance(owner, base))
        with pytest.raises(InputError, match=message):
            dadagrad.train(data_of("loss"), step_size=0.2, **{kind: altered(owner, **members)})


@pytest.mark.parametrize("batch_size", [1, 20])
@pytest.mark.parametrize("owner", [OwnHinge(), OwnSoftmax()], ids=["two classes", "three"])
def test_a_loss_that_is_not_a_number_ends_the_run_at_its_row(owner, batch_size):
    def value(self, scores, labels):
        first = scores[..., 0] if owner.couples else scores
        return np.where(first > 0.0, np.nan, owner.value(scores, labels))

    data = data_of("loss of all classes" if owner.couples else "loss")
    settings = {"loss": altered(owner, value=value), "batch_size": batch_size, "step_size": 0.2}
    with pytest.raises(TrainingError, match=r"part-\d+: the value of Wrong is NaN in row \d+"):
        dadagrad.train(data, **settings)


@pytest.mark.parametrize("from_disk", [False, True])
def test_a_run_with_an_own_loss_goes_on(from_disk, tmp_path):
    data = data_of("loss")
    first = dadagrad.train(data, loss=OwnHinge(), step_size=0.2)
    first.save(str(tmp_path))
    config = dadagrad.TrainConfig(loss=OwnHinge(), step_size=0.2)
    given = (
        {"initial_model": str(tmp_path), "config": config}
        if from_disk
        else {"initial_model": first}
    )
    at_once = dadagrad.train([data, data], config)
    assert dadagrad.train(data, **given).model.digest == at_once.model.digest


def test_an_estimator_with_own_objects_resumes_from_its_checkpoints(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(2, 60, 3))
    model = dadagrad.AdaGradClassifier(OwnHinge(), regularizer=OwnL1(1e-3), passes=2)
    digest = model.fit(X, y[:, 0] > 0).model_.digest
    model.set_params(checkpoints=str(tmp_path / "run"))
    for _ in range(2):
        assert model.fit(X, y[:, 0] > 0).model_.digest == digest


class OwnGamma(OwnPoisson):
    """The gamma loss, which is for labels above 0 alone."""

    label_range = (1e-3, np.inf)

    def value(self, scores, labels):
        logs = np.log(np.where(labels > 0.0, labels, np.nan))
        return labels * np.exp(-scores) + scores - logs - 1.0

    def slope(self, scores, labels):
        return 1.0 - labels * np.exp(-scores)


@pytest.mark.parametrize("batch_size", [1, 20])
@pytest.mark.parametrize("label_range", [(1e-3, np.inf), (-np.inf, np.inf)])
def test_labels_that_the_data_does_not_have_are_not_asked_for(label_range, batch_size):
    data = make_data(labels="real")
    for index in range(len(data.partitions)):
        data.read(index).labels[:] = 2.0 + np.abs(data.read(index).labels)
    loss = altered(OwnGamma(), label_range=label_range)
    result = dadagrad.train(data, loss=loss, step_size=0.1, batch_size=batch_size)
    assert np.isfinite(result.report["progressive_loss"])
