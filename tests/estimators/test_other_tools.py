"""Estimators and models in the tools that people have, with the real packages."""

import time
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.calibration import CalibratedClassifierCV
from sklearn.inspection import partial_dependence, permutation_importance

from dadagrad import AdaGradClassifier, InputError, train

SETTINGS = {"step_size": 0.3, "passes": 2, "average": False}


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 4))
    return X, np.where(X[:, 0] - 0.5 * X[:, 1] > 0.3 * random.normal(size=300), "yes", "no")


@pytest.fixture(scope="module")
def fitted(rows):
    return AdaGradClassifier(**SETTINGS).fit(*rows)


def test_calibration_by_cross_validation(rows):
    calibrated = CalibratedClassifierCV(AdaGradClassifier(**SETTINGS), cv=2).fit(*rows)
    assert calibrated.score(*rows) > 0.9


def test_importance_and_partial_dependence(rows, fitted):
    importance = permutation_importance(fitted, *rows, n_repeats=2, random_state=0)
    assert importance.importances_mean.argmax() == 0
    chances = partial_dependence(fitted, rows[0], [0], grid_resolution=5)["average"][0]
    assert (np.diff(chances) > 0).all()


def test_explanations_of_shap_add_up_to_the_score(rows, fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        import shap
    X = rows[0]
    explained = shap.LinearExplainer((fitted.coef_[0], fitted.intercept_[0]), X)
    by_estimator = shap.LinearExplainer(fitted, X)
    for explainer in (explained, by_estimator):
        values = explainer.shap_values(X[:5])
        total = values.sum(axis=1) + explainer.expected_value
        np.testing.assert_allclose(total, fitted.decision_function(X[:5]), atol=1e-6)


def test_a_report_of_skore(rows, fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from skore import EstimatorReport

        X, y = rows
        report = EstimatorReport(fitted, X_test=X, y_test=y, pos_label="yes")
        assert report.metrics.accuracy() == fitted.score(X, y)
        assert 0.0 < report.metrics.brier_score() < 0.1


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # of anndata
@pytest.mark.parametrize("kind", [np.asarray, csr_array, csr_matrix])
def test_the_matrix_of_an_anndata(rows, kind):
    import anndata
    import pandas

    X, y = rows
    obs = pandas.DataFrame({"type": pandas.Categorical(y)}, index=list(map(str, range(len(y)))))
    cells = anndata.AnnData(kind(X), obs)[:, ["0", "1"]]  # a view
    expected = AdaGradClassifier(**SETTINGS).fit(X[:, :2], y)
    estimator = AdaGradClassifier(**SETTINGS).fit(cells.X, cells.obs["type"])
    np.testing.assert_allclose(estimator.coef_, expected.coef_, rtol=1e-5)
    model = train((cells.X, cells.obs["type"]), step_size=0.3).model
    assert (model.predict(cells.X) == y).mean() > 0.9
    begun = time.process_time()
    with pytest.raises(InputError, match=r"X, a AnnData, as a matrix .* such as adata.X"):
        train((cells, cells.obs["type"]))
    assert time.process_time() - begun < 1.0  # NumPy alone would take it apart, cell by cell
