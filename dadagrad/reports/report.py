"""Reports of models and runs as files: one HTML page, or JSON."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from dadagrad.errors import InputError
from dadagrad.reports.document import TOP, describe
from dadagrad.reports.page import page
from dadagrad.storage.documents import strict_json
from dadagrad.storage.store import Storage

if TYPE_CHECKING:
    from dadagrad.model.model import Model
    from dadagrad.training.result import TrainResult


def report(
    run: Model | TrainResult | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    holdout: Any = None,
    format: Literal["html", "json"] = "html",
    top: int = TOP,
    overwrite: bool = True,
) -> str:
    """Make a report of a model or a run: one HTML page without external resources, or JSON.

    Parameters
    ----------
    run : Model, TrainResult or str
        A model, a result of training, or the URL of a model or of a folder of checkpoints.
    out : str, optional
        File or URL to write.
    holdout : Dataset, str, pair (X, y) or data frame, optional
        Data on which the model is measured, as for `dadagrad.evaluate`; by default the report has
        the rows that the run held out, if there are any.
    format : "html" or "json"
        The entries of the JSON object are described in the guide "Reports, logs and callbacks".
    top : int
        Largest weights of each sign that are shown for an output.
    overwrite : bool
        Replace a file that is there.

    Returns
    -------
    str
        The text of the report.

    Raises
    ------
    InputError
        There is neither a model nor a run, the holdout data do not suit the model, or `out` cannot
        be written.
    """
    if format not in ("html", "json"):
        raise InputError(f"format must be 'html' or 'json', not {format!r}")
    folder, separator, name = os.fspath(out or "").rpartition("/")
    storage = Storage(folder + separator or ".")
    if name and not overwrite and storage.exists(name):
        raise InputError(f"{out} exists; give another file, or overwrite to replace it")
    document = describe(run, holdout, top=top)
    text = page(document) if format == "html" else strict_json(document) + "\n"
    if name:
        storage.put(name, text.encode())
    return text
