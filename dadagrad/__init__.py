"""Out-of-core, distributed AdaGrad for sparse linear models.

>>> import dadagrad
>>> data = dadagrad.dataset_from_arrays([[0.0, 1.0], [1.0, 0.0]] * 50, [1.0, -1.0] * 50)
>>> result = dadagrad.train(data, dadagrad.TrainConfig(loss="hinge", step_size=0.5))
>>> round(result.report["progressive_error"], 2)
0.02

Heavy libraries (numba, dask, zarr, scikit-learn) are imported when something needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dadagrad._version import __version__

if TYPE_CHECKING:
    from dadagrad.config import TrainConfig as TrainConfig
    from dadagrad.data import open_dataset as open_dataset
    from dadagrad.data.arrays import dataset_from_arrays as dataset_from_arrays
    from dadagrad.data.dataset import Dataset as Dataset
    from dadagrad.data.ingest.ingest import ingest as ingest
    from dadagrad.errors import DadagradError as DadagradError
    from dadagrad.errors import InputError as InputError
    from dadagrad.errors import StorageError as StorageError
    from dadagrad.errors import TrainingError as TrainingError
    from dadagrad.estimators import AdaGradClassifier as AdaGradClassifier
    from dadagrad.estimators import AdaGradClassifierCV as AdaGradClassifierCV
    from dadagrad.estimators import AdaGradRanker as AdaGradRanker
    from dadagrad.estimators import AdaGradRegressor as AdaGradRegressor
    from dadagrad.estimators import AdaGradRegressorCV as AdaGradRegressorCV
    from dadagrad.model.evaluate import evaluate as evaluate
    from dadagrad.model.export import export as export
    from dadagrad.model.model import Model as Model
    from dadagrad.model.predict import predict as predict
    from dadagrad.optim.losses import Loss as Loss
    from dadagrad.optim.preconditioners import Preconditioner as Preconditioner
    from dadagrad.optim.regularizers import Regularizer as Regularizer
    from dadagrad.optim.updates import Update as Update
    from dadagrad.reports.page import report as report
    from dadagrad.training.callbacks import Callback as Callback
    from dadagrad.training.dry_run import DryRun as DryRun
    from dadagrad.training.dry_run import dry_run as dry_run
    from dadagrad.training.run import TrainResult as TrainResult
    from dadagrad.training.run import resume as resume
    from dadagrad.training.run import train as train
    from dadagrad.training.sweep import SweepResult as SweepResult
    from dadagrad.training.sweep import sweep as sweep

_HOMES = {
    "AdaGradClassifier": "dadagrad.estimators",
    "AdaGradClassifierCV": "dadagrad.estimators",
    "AdaGradRanker": "dadagrad.estimators",
    "AdaGradRegressor": "dadagrad.estimators",
    "AdaGradRegressorCV": "dadagrad.estimators",
    "Callback": "dadagrad.training.callbacks",
    "DadagradError": "dadagrad.errors",
    "Dataset": "dadagrad.data.dataset",
    "DryRun": "dadagrad.training.dry_run",
    "InputError": "dadagrad.errors",
    "Loss": "dadagrad.optim.losses",
    "Model": "dadagrad.model.model",
    "Preconditioner": "dadagrad.optim.preconditioners",
    "Regularizer": "dadagrad.optim.regularizers",
    "StorageError": "dadagrad.errors",
    "SweepResult": "dadagrad.training.sweep",
    "TrainConfig": "dadagrad.config",
    "TrainResult": "dadagrad.training.run",
    "TrainingError": "dadagrad.errors",
    "Update": "dadagrad.optim.updates",
    "dataset_from_arrays": "dadagrad.data.arrays",
    "dry_run": "dadagrad.training.dry_run",
    "evaluate": "dadagrad.model.evaluate",
    "export": "dadagrad.model.export",
    "ingest": "dadagrad.data.ingest.ingest",
    "open_dataset": "dadagrad.data",
    "predict": "dadagrad.model.predict",
    "report": "dadagrad.reports.page",
    "resume": "dadagrad.training.run",
    "sweep": "dadagrad.training.sweep",
    "train": "dadagrad.training.run",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dadagrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
