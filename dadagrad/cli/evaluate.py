"""``dadagrad evaluate`` and ``dadagrad predict``: what a model is worth, and what it says."""

from __future__ import annotations

import click

from dadagrad.amounts import size
from dadagrad.cli.display import Display, print_facts, print_json
from dadagrad.cli.options import output_options


@click.command()
@click.argument("model")
@click.argument("data")
@output_options
def evaluate(model: str, data: str, as_json: bool, quiet: bool) -> None:
    """Loss, error and AUC of MODEL on DATA, weighted by the weights of its rows.

    Of a ranking: accuracy over pairs, and NDCG of the first 10 rows, averaged over queries.
    """
    display = Display(quiet=quiet)
    from dadagrad.evaluation import evaluate as run

    with display.showing_logs(), display.bar("evaluating", 0) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done)

        result = run(model, data, progress=progress)
    (print_json if as_json else print_facts)(result)


@click.command()
@click.argument("model")
@click.argument("data")
@click.option(
    "--out",
    required=True,
    metavar="URL",
    help="The file to write: Parquet (.parquet, or no suffix) or CSV with a header (.csv).",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@output_options
def predict(model: str, data: str, out: str, overwrite: bool, as_json: bool, quiet: bool) -> None:
    """Write what MODEL says of each row of DATA to a Parquet or CSV file.

    Its columns are row, margin (one for each class or label), prediction, and probability where
    the loss is logistic or softmax. The file appears when it is complete.
    """
    display = Display(quiet=quiet)
    from dadagrad.evaluation import predict as run

    with display.showing_logs(), display.bar("predicting", 0) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done)

        result = {**run(model, data, out, overwrite=overwrite, progress=progress), "out": out}
    if as_json:
        print_json(result)
    else:
        print_facts(result | {"bytes": size(result["bytes"])})
