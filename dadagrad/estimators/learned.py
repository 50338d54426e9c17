"""What an estimator has learned: the state of the update, and the model it stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.method import Method
from dadagrad.model import Model
from dadagrad.training.begin import AnyCoordinator
from dadagrad.training.result import make_model
from dadagrad.training.states import TrainingState
from dadagrad.training.tally import Tally


@dataclass(eq=False)
class Learned:
    """State, and what is derived from it when it is first asked for.

    The state goes on changing in `partial_fit`, which makes a new `Learned` each time; what was
    derived from this one stays as it is.

    Attributes
    ----------
    method : Method
    state : TrainingState
    tally : Tally
        Of all rows so far.
    steps : int
    origin : Dataset
        The address and the schema of what was learned from, without its rows.
    report : dict
        Plain JSON.
    feature_names : (n_features,) of str, or None
    sparse : bool
        Whether `coefficients` are.
    """

    method: Method
    state: TrainingState
    tally: Tally
    steps: int
    origin: Dataset
    report: dict[str, Any]
    feature_names: NDArray[np.object_] | None = None
    sparse: bool = False
    _model: Model | None = None
    _coefficients: Any = None

    @classmethod
    def by(
        cls,
        coordinator: AnyCoordinator,
        data: Dataset,
        report: dict[str, Any],
        model: Model | None = None,
    ) -> Learned:
        """What `coordinator` learned from `data`; `model` where it was made already."""
        origin = MemoryDataset((), data.schema, data.url)
        end = coordinator
        return cls(end.method, end.state, end.tally, end.steps, origin, report, _model=model)

    @property
    def model(self) -> Model:
        """The model as it can be saved."""
        if self._model is None:
            self._model = make_model(self.method, self.state, self.origin, self.report)
        names = self.feature_names
        if names is not None and not self._model.names:
            named = {column: str(names[column]) for column in self._model.ids.tolist()}
            self._model = replace(self._model, names=named)
        return self._model

    @property
    def coefficients(self) -> Any:
        """(n_outputs, n_features) float64: an array, or a CSR matrix."""
        if self._coefficients is None:
            model = self.model
            shape = model.n_outputs, model.n_features
            if self.sparse:
                kept = scipy.sparse.csr_matrix(model.weights.T.astype(np.float64))
                entries = kept.data, model.ids[kept.indices], kept.indptr
                self._coefficients = scipy.sparse.csr_matrix(entries, shape)
            else:
                self._coefficients = np.zeros(shape)
                self._coefficients[:, model.ids] = model.weights.T
        return self._coefficients

    def with_coefficients(self, *, sparse: bool) -> Learned:
        """The same with sparse or dense coefficients."""
        return replace(self, sparse=sparse, _coefficients=None)

    def __getstate__(self) -> dict[str, Any]:
        """Without the coefficients, which the model has in less space."""
        return self.__dict__ | {"_coefficients": None}
