"""Calibration of scores: fits beside scikit-learn's, and the probabilities of runs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from dadagrad import InputError, Model, dataset_from_arrays, evaluate, train
from dadagrad.kernels.training import Targets, count_by_score
from dadagrad.optim.calibration import CALIBRATIONS, FIRST_KEY, N_BINS, Isotonic, Platt, bin_scores
from dadagrad.optim.registry import describe
from dadagrad.training.worker import compute

ALIKE = 1e12  # so much importance came before that all rows count alike
ONE_TARGET = Targets(0, 0.0, 1, np.zeros(1, np.int64), np.ones(1), True)


def histogram_of(scores, labels, share=1, weights=(), t=ALIKE):
    """A histogram in which all rows count alike, unless they are the first, from `t` on."""
    histogram = np.zeros((N_BINS, 2))
    rows = np.array(scores)[None], np.asarray(labels, float)[None]
    count_by_score(*rows, ONE_TARGET, False, share, np.array(weights), t, FIRST_KEY, histogram)
    return histogram / max(t, 1.0) ** 3


@pytest.fixture
def scored():
    """Scores, and labels of which they say the chances."""
    random = np.random.default_rng(0)
    scores = random.normal(0.3, 1.0, 4_000)
    return scores, random.random(4_000) < expit(3.0 * scores - 0.7)


@given(st.floats(2.0**-9, 2.0**13), st.sampled_from([-1.0, 1.0]))
def test_the_bin_of_a_score_stands_for_it(size, sign):
    places = histogram_of(np.array([sign * size]), np.ones(1)).sum(axis=1)
    assert bin_scores()[places > 0] == pytest.approx(sign * size, rel=1 / 15)


def test_bins_take_every_score():
    assert (np.diff(bin_scores()) >= 0).all()
    scores = np.array([0.0, 1e-30, -1e-30, 1e30, -1e30, np.inf])
    assert histogram_of(scores, np.ones(6)).sum() == pytest.approx(6.0)


def test_platt_is_the_logistic_regression_of_labels_on_scores(scored):
    scores, labels = scored
    fitted = Platt().fit(histogram_of(scores, labels))
    exact = LogisticRegression(C=np.inf).fit(scores[:, None], labels)
    assert fitted.slope == pytest.approx(exact.coef_[0, 0], rel=0.02)
    assert fitted.offset == pytest.approx(exact.intercept_[0], abs=0.02)


def test_isotonic_is_that_of_scikit_learn(scored):
    scores, labels = scored
    fitted = Isotonic().fit(histogram_of(scores, labels))
    exact = IsotonicRegression(out_of_bounds="clip").fit(scores, labels)
    tried = np.linspace(-2.0, 2.0, 41)
    chances = expit(fitted.log_odds(tried))
    assert (np.diff(chances) >= 0).all()
    assert np.abs(chances - exact.predict(tried)).mean() < 0.02


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]])
@pytest.mark.parametrize("kind", ["platt", "isotonic"])
def test_few_rows_make_no_certainty(kind, labels):
    fitted = CALIBRATIONS.make(kind).fit(
        histogram_of(np.array([-9.0, -1.0, 1.0, 9.0]), np.array(labels))
    )
    chances = expit(fitted.log_odds(np.array([-50.0, 0.0, 50.0])))
    assert (np.isfinite(chances)).all()
    assert CALIBRATIONS.make(describe(fitted)) == fitted


@pytest.mark.parametrize("kind", ["platt", "isotonic"])
def test_a_larger_score_never_has_a_smaller_probability(kind):
    against = histogram_of(np.array([-3.0, -1.0, 1.0, 3.0]), np.array([1, 1, 0, 0]))
    for even_at_0 in (False, True):
        fitted = CALIBRATIONS.make(kind).fit(against, even_at_0=even_at_0)
        chances = expit(fitted.log_odds(np.array([-2.0, 2.0])))
        assert chances[0] <= chances[1]
        assert chances == pytest.approx(0.5, abs=1e-6)


def make_rows(n_classes, n_rows=6_000):
    """Rows of overlapping classes."""
    random = np.random.default_rng(1)
    labels = random.integers(0, n_classes, n_rows)
    centers = random.normal(0.0, 0.6, (n_classes, 8))
    return centers[labels] + random.normal(size=(n_rows, 8)), labels


@pytest.mark.parametrize(
    ("loss", "n_classes", "calibration"),
    [
        ("hinge", 2, "platt"),
        ("hinge", 4, "isotonic"),
        ("squared-hinge", 2, "isotonic"),
        ("logistic", 2, "platt"),
        ("logistic", 4, "platt"),
        ("multiclass-hinge", 2, "isotonic"),
        ("multiclass-hinge", 4, "platt"),
    ],
)
def test_probabilities_are_right_as_often_as_they_say(loss, n_classes, calibration, tmp_path):
    X, y = make_rows(n_classes)
    half = len(y) // 2
    learned, test = (
        dataset_from_arrays(X[part], y[part]) for part in np.split(np.arange(2 * half), 2)
    )
    model = train(learned, loss=loss, step_size=0.3, calibration=calibration).model
    measured = evaluate(model, test)
    assert measured["calibration_error"] < 0.04
    scores = np.concatenate([model.scores(test.read(0)), np.zeros((1, model.n_outputs))])
    chances, chosen = model.probabilities(scores), model.predict_labels(scores).astype(int)
    np.testing.assert_array_equal(
        np.take_along_axis(chances, chosen[:, None], 1)[:, 0], chances.max(axis=1)
    )
    model.save(tmp_path)
    again = Model.load(tmp_path)
    assert again.calibration == model.calibration
    assert evaluate(again, test)["log_loss"] == measured["log_loss"]


def test_without_a_calibration_scores_of_a_hinge_are_no_probabilities():
    model = train(dataset_from_arrays(*make_rows(2, 200)), calibration="none", step_size=0.3).model
    assert not model.has_probabilities
    with pytest.raises(InputError, match="calibration 'platt'"):
        model.probabilities(np.zeros((1, 1)))


def test_rows_that_are_known_by_heart_do_not_count():
    """Two features for each row: the last passes predict every row right."""
    data = dataset_from_arrays(np.random.default_rng(0).normal(size=(300, 600)), [0.0, 1.0] * 150)
    once, often = (train(data, step_size=0.3, passes=passes).model for passes in (1, 4))
    assert once.calibration == often.calibration
    assert once.digest != often.digest


def test_weights_that_grow_over_several_passes_are_calibrated():
    """After one short pass the scores are a third of those after five."""
    X, y = make_rows(2)
    learned, test = (dataset_from_arrays(X[part], y[part]) for part in np.split(np.arange(6000), 2))
    model = train(learned, loss="logistic", step_size=0.003, average=False, passes=5).model
    assert evaluate(model, test)["calibration_error"] < 0.04


def test_a_row_of_weight_two_is_two_rows():
    weighted = histogram_of([0.5, -2.0], [1, 0], weights=[1.0, 2.0])
    repeated = histogram_of([0.5, -2.0, -2.0], [1, 0, 0])
    np.testing.assert_allclose(weighted, repeated, rtol=1e-11)


@pytest.mark.parametrize("calibration", ["platt", "isotonic"])
def test_probabilities_do_not_depend_on_the_unit_of_weights(calibration):
    X, y = make_rows(2)
    settings = {"loss": "logistic", "calibration": calibration, "step_size": 0.3}
    whole, small = (
        evaluate(train((X, y, np.full(len(y), unit)), **settings).model, (X, y))["log_loss"]
        for unit in (1.0, 1e-4)
    )
    assert small == pytest.approx(whole, rel=0.05)


def test_a_row_after_twice_as_many_counts_eight_times():
    """Early scores are of other weights than the model's."""
    scores = np.full(200, np.nan)
    scores[[99, 199]] = -2.0, 2.0
    histogram = histogram_of(scores, np.ones(200), t=0.0)
    early, late = histogram[histogram > 0]
    assert late == pytest.approx(8.0 * early)


def test_a_row_counts_for_the_rows_without_a_score():
    scores = np.full(16, np.nan)
    scores[::8] = 0.5, -2.0
    assert histogram_of(scores, np.ones(16), share=8).sum() == pytest.approx(16.0)


def test_averages_of_some_rows_calibrate_as_those_of_all(monkeypatch):
    data = dataset_from_arrays(*make_rows(2, 20_000), partition_nnz=8_000)
    slopes = []
    for counted in (compute.COUNTED_ROWS, 1e9):
        monkeypatch.setattr(compute, "COUNTED_ROWS", counted)
        slopes.append(train(data, step_size=0.3, average=True).model.calibration.slope)
    assert slopes[0] != slopes[1]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.1)  # of 4,300 rows


@pytest.mark.parametrize("calibration", ["platt", "isotonic"])
def test_a_first_pass_of_one_batch_tells_nothing(calibration):
    rows = make_rows(2, 400)
    settings = {"loss": "logistic", "step_size": 0.5, "batch_size": 400, "calibration": calibration}
    losses = [evaluate(train(rows, passes=n, **settings).model, rows)["log_loss"] for n in (1, 5)]
    assert losses[1] < 0.9 * losses[0] <= 0.9 * np.log(2.0) + 1e-12
