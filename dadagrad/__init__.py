"""Out-of-core, distributed AdaGrad for sparse linear models.

>>> import dadagrad
>>> result = dadagrad.train("data/train.zarr", dadagrad.TrainConfig(loss="hinge", l1=1e-6))
>>> result.model.save("model")

Heavy libraries (numba, dask, zarr, scikit-learn) are imported when something needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dadagrad.config import TrainConfig
    from dadagrad.data.arrays import dataset_from_arrays
    from dadagrad.data.dataset import Dataset, open_dataset
    from dadagrad.data.ingest import ingest
    from dadagrad.errors import DadagradError, InputError, StorageError, TrainingError
    from dadagrad.estimators import AdaGradClassifier, AdaGradRanker, AdaGradRegressor
    from dadagrad.evaluation import evaluate, predict
    from dadagrad.model import Model
    from dadagrad.training.dry_run import DryRun, dry_run
    from dadagrad.training.run import TrainResult, Where, resume, train

__version__ = "0.1.0"

_HOMES = {
    "AdaGradClassifier": "dadagrad.estimators",
    "AdaGradRanker": "dadagrad.estimators",
    "AdaGradRegressor": "dadagrad.estimators",
    "DadagradError": "dadagrad.errors",
    "Dataset": "dadagrad.data.dataset",
    "DryRun": "dadagrad.training.dry_run",
    "InputError": "dadagrad.errors",
    "Model": "dadagrad.model",
    "StorageError": "dadagrad.errors",
    "TrainConfig": "dadagrad.config",
    "TrainResult": "dadagrad.training.run",
    "TrainingError": "dadagrad.errors",
    "Where": "dadagrad.training.run",
    "dataset_from_arrays": "dadagrad.data.arrays",
    "dry_run": "dadagrad.training.dry_run",
    "evaluate": "dadagrad.evaluation",
    "ingest": "dadagrad.data.ingest",
    "open_dataset": "dadagrad.data.dataset",
    "predict": "dadagrad.evaluation",
    "resume": "dadagrad.training.run",
    "train": "dadagrad.training.run",
}

__all__ = [
    "AdaGradClassifier",
    "AdaGradRanker",
    "AdaGradRegressor",
    "DadagradError",
    "Dataset",
    "DryRun",
    "InputError",
    "Model",
    "StorageError",
    "TrainConfig",
    "TrainResult",
    "TrainingError",
    "Where",
    "dataset_from_arrays",
    "dry_run",
    "evaluate",
    "ingest",
    "open_dataset",
    "predict",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dadagrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
