"""scikit-learn's own checks of its conventions, on the estimators in several settings."""

import inspect

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dadagrad import (
    AdaGradClassifier,
    AdaGradClassifierCV,
    AdaGradRanker,
    AdaGradRegressor,
    AdaGradRegressorCV,
)
from dadagrad.config import SETTINGS

ESTIMATORS = [
    AdaGradClassifier(),
    AdaGradRegressor(loss="huber", update="mirror-descent"),
    AdaGradClassifierCV(cv=2, step_size=0.5, l1=[0.0, 0.1], passes=2),
    AdaGradRegressorCV(cv=2, step_size=0.5, l1=[0.0, 0.1], passes=1),
]

# Both checks compare rows in one order with their repetitions in another. The method learns from
# one row after the other, so that another order, or folds cut elsewhere, is another model. In the
# same order weights do stand for repetitions: `test_weights_stand_for_repetitions`, bit for bit.
ORDER_MATTERS = "rows are compared in two orders, and an online method depends on their order"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": ORDER_MATTERS,
    "check_sample_weight_equivalence_on_sparse_data": ORDER_MATTERS,
}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("estimator", "loss", "excluded"),
    [
        (AdaGradClassifier, "hinge", set()),
        (AdaGradRegressor, "squared", {"calibration", "class_weight"}),
        (
            AdaGradRanker,
            "ranking",
            {"calibration", "center", "class_weight", "fit_intercept"},
        ),
    ],
)
def test_parameters_are_the_settings(estimator, loss, excluded):
    defaults = {name: setting.default for name, setting in SETTINGS.items() if name != "seed"}
    defaults |= {"loss": loss, "passes": 5}
    defaults |= dict.fromkeys(("random_state", "threads", "client", "checkpoints", "callbacks"))
    defaults |= {"verbose": 0}
    expected = {name: value for name, value in defaults.items() if name not in excluded}
    assert estimator().get_params() == expected
    first, *others = inspect.signature(estimator).parameters.values()
    assert first.name == "loss"
    assert {parameter.kind for parameter in others} == {inspect.Parameter.KEYWORD_ONLY}
    assert "passes : int, default=5" in estimator.__doc__
    with pytest.raises(TypeError, match="unexpected keyword argument 'l3'"):
        estimator(l3=1.0)
