"""Several step sizes and penalties in one pass: each is a model of its own, the best is kept."""

from itertools import product

import numpy as np
import pytest
from helpers.training_cases import UPDATES, make_data
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import AdaGradClassifier, InputError, TrainConfig, TrainingError, train
from dadagrad.training.result import make_model

MANY = {"step_size": [0.05, 0.4, 1.5], "l1": [0.0, 1e-2]}
MODES = ({"batch_size": 1}, {"batch_size": 9}, {"streams": 16, "rounds": 4})
KINDS = (*(("hinge", each) for each in ("binary", "multiclass")), ("softmax", "multiclass"),
         ("squared", "real"))  # fmt: skip


@settings(max_examples=10)
@given(update=st.sampled_from(UPDATES), mode=st.sampled_from(MODES), kind=st.sampled_from(KINDS))
def test_each_setting_has_the_bits_of_a_run_of_its_own(update, mode, kind):
    loss, labels = kind
    data = make_data((20, 11, 25), labels=labels, weighted=True)
    config = TrainConfig(loss=loss, update=update, l2=1e-3, passes=2, **mode)
    together = train(data, config, **MANY)
    report = together.report
    expected = list(product(*MANY.values()))
    found = [(setting["step_size"], setting["l1"]) for setting in report["settings"]]
    assert found == expected
    alone = [train(data, config, step_size=step_size, l1=l1) for step_size, l1 in expected]
    problem, state = together.coordinator.problem, together.coordinator.state
    models = [make_model(problem, state, data, {"best": k}) for k in range(len(alone))]
    assert [each.digest for each in models] == [result.model.digest for result in alone]
    for setting, result in zip(report["settings"], alone, strict=True):
        for name in ("progressive_loss", "progressive_error"):
            assert setting[name] == result.report[name]
    losses = [result.report["progressive_loss"] for result in alone]
    assert report["best"] == int(np.argmin(losses))
    best = alone[report["best"]]
    assert together.model.digest == best.model.digest
    assert together.model.report["config"] == best.model.report["config"]
    for name in ("progressive_loss", "progressive_error", "step_size", "rows", "steps", "nonzeros"):
        assert report[name] == best.report[name]


def test_an_automatic_step_size_is_for_all_penalties():
    data = make_data((200, 100))
    result = train(data, l2=[1e-3, 1e-1], batch_size=1)
    chosen = train(data, l2=1e-3, batch_size=1)
    step_size = chosen.report["step_size"]
    assert [setting["step_size"] for setting in result.report["settings"]] == [step_size] * 2
    assert result.report["settings"][0]["progressive_loss"] == chosen.report["progressive_loss"]


@pytest.mark.parametrize(
    ("mode", "step_size"),
    [
        ({"batch_size": 1}, 1e25),
        ({"batch_size": 9}, 1e25),
        ({"batch_size": 150}, 1e37),  # only the gradient of the last batch is infinite
        ({"streams": 2, "rounds": 2}, 1e25),
    ],
)
def test_a_setting_that_diverges_leaves_the_others_alone(mode, step_size):
    data = make_data((300,), labels="real")
    config = TrainConfig(loss="squared", fit_intercept=False, **mode)
    result = train(data, config, step_size=[step_size, 0.1])
    assert result.report["settings"][0]["progressive_loss"] is None
    assert result.report["best"] == 1
    assert result.model.digest == train(data, config, step_size=0.1).model.digest
    with pytest.raises(TrainingError, match="diverged"):
        train(data, config, step_size=[step_size, 2 * step_size])


def test_an_estimator_keeps_the_best_and_goes_on_with_all():
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 12))
    y = X @ random.normal(size=12) > 0
    settings = {"step_size": [1e-4, 0.3], "batch_size": 1, "shuffle": False}
    many = AdaGradClassifier(**settings).partial_fit(X, y, classes=[False, True])
    alone = AdaGradClassifier(**settings | {"step_size": 0.3}).partial_fit(X, y, classes=[0, 1])
    for _ in range(2):
        assert (many.coef_ == alone.coef_).all()
        assert many.report_["best"] == 1
        many.partial_fit(X, y)
        alone.partial_fit(X, y)
    with pytest.raises(InputError, match="number of settings side by side was 2"):
        many.set_params(step_size=[0.1, 0.2, 0.3]).partial_fit(X, y)
