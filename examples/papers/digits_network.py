"""A convolutional network in sketched metrics (Wan, Wei and Zhang 2018, section 4.3 and figure 4).

MNIST and the network of the paper: two convolutions of 3 x 3 with 32 and 64 channels, max-pooling,
a dense layer of 128, dropout, batches of 128, mirror descent without a penalty. A method is the
preconditioner of the convolutions, tau = 20; the dense layers have ADA-DIAG, with the step size and
delta that are best for ADA-DIAG in the whole network. Adam has the whole network, and its epsilon
is called delta. Step size and delta have the least validation loss after one epoch of the first
rows, of one grid for all methods; the paper does not say how it chose them. Figures are means over
seeds, which set the first weights, the order of the rows and the dropout. Seconds are CPU time of
the steps.

A small network with 4 and 8 channels and a dense layer of 32, where ADA-FULL is possible, learns
10,000 rows in 5 epochs, with 3 seeds. With `--full` the network of the paper, for which ADA-FULL is
too large, learns 55,000 rows as well: 2 epochs with 2 seeds, where the paper has 5 seeds and its
Keras example 12 epochs. The grid has step sizes of 1e-3 to 1 and deltas of 1e-6 to 1; that of the
paper begins at 1e-8. The paper prints no figures: by its text ADA-FD is ahead of the others in
training loss and test accuracy.

In two epochs of the network of the paper, the methods with sketches and projections are ahead of
ADA-DIAG, and within 0.1 % of each other on the test rows. RADAGRAD, with the largest step size and
delta of the grid, has the least training loss. An epoch takes up to 10 % more time than with
ADA-DIAG.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dadagrad.errors import TrainingError
from dadagrad.optim.preconditioners import Diagonal, Full, RadaGrad, Sketch, SketchedNewton
from examples.papers import sets
from examples.papers.record import Claim, MissingData, Options, Outcome, Plot, Table, order

try:
    import torch
    from torch import nn

    from dadagrad.torch import AdaGrad
except ModuleNotFoundError:
    torch = None

RANK = 20
PRECONDITIONERS: dict[str, Any] = {
    "ADA-DIAG": Diagonal,
    "ADA-FULL": Full,
    "ADA-FD": partial(Sketch, rank=RANK, buffer=0),
    "RADAGRAD": partial(RadaGrad, rank=RANK),
    "FD-SON": partial(SketchedNewton, rank=RANK, buffer=0),
}
METHODS = (*PRECONDITIONERS, "Adam")


class Size(NamedTuple):
    """Sizes of an experiment."""

    channels: tuple[int, int]
    n_hidden: int
    n_rows: int
    n_epochs: int
    n_seeds: int
    n_tuned: int
    step_sizes: tuple[float, ...] = (1e-3, 0.01, 0.1, 1.0)
    deltas: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
    batch_size: int = 128


QUICK = Size((4, 8), 64, 800, 2, 1, 300, (0.01, 0.1), (0.01, 1.0), 10)
USUAL = Size((4, 8), 32, 10_000, 5, 3, 8_000)
FULL = Size((32, 64), 128, 55_000, 2, 2, 5_000)


class Setting(NamedTuple):
    """Step size and delta."""

    step_size: float
    delta: float


class Images(NamedTuple):
    """Images (n, 1, side, side) and their classes."""

    x: Any
    y: Any

    def part(self, start: int, stop: int) -> Images:
        return Images(self.x[start:stop], self.y[start:stop])


class Run(NamedTuple):
    """Training loss of each epoch; test loss, test accuracy and CPU seconds so far after it."""

    training_loss: Any
    loss: Any
    accuracy: Any
    seconds: Any


def run(options: Options) -> Outcome:
    if torch is None:
        raise MissingData("needs PyTorch; pip install 'dadagrad[torch]'")
    torch.set_num_threads(1)
    data = sets.images(options)
    mixed = np.random.default_rng(0).permutation(len(data.y))
    images, test = load(data.x[mixed], data.y[mixed]), load(data.test_x, data.test_y)
    sizes: tuple[Size, ...] = options.choose((QUICK,), (USUAL,), (USUAL, FULL))
    outcomes = [compare(size, images, test) for size in sizes]
    return Outcome(
        [table for each in outcomes for table in each.tables],
        [plot for each in outcomes for plot in each.plots],
    )


def compare(size: Size, images: Images, test: Images) -> Outcome:
    """All methods on one network."""
    n_validation = min(2_000, len(images.y) // 10)
    validation, rows = images.part(0, n_validation), images.part(n_validation, len(images.y))
    few, rows = rows.part(0, size.n_tuned), rows.part(0, size.n_rows)
    lines, curves, dense = [], {}, None
    for name in METHODS:
        if name == "ADA-FULL" and size is FULL:
            continue
        best = tune(name, size, few, validation, dense)
        dense = dense or best  # ADA-DIAG is first
        runs = [learn(name, best, dense, size, rows, test, seed) for seed in range(size.n_seeds)]
        result = Run(*np.mean(runs, axis=0))
        seconds = float(result.seconds[-1]) / size.n_epochs
        spread = float(np.std([each.accuracy[-1] for each in runs]))
        shown = (result.training_loss[-1], result.accuracy[0], result.accuracy[-1])
        lines.append((name, *best, *map(float, shown), spread, seconds))
        curves[name] = result
    columns = ("method", "step size", "delta", "training loss", "accuracy after one epoch")
    columns += ("test accuracy", "standard deviation", "seconds an epoch")
    title = f"{len(rows.y):,} rows, {size.channels[0]} and {size.channels[1]} channels"
    epochs = list(range(1, size.n_epochs + 1))
    file = "digits_network_full" if size is FULL else "digits_network"
    plots = [
        Plot(
            f"{file}_{kind}",
            f"A convolutional network, {title}",
            "epochs" if kind == "epochs" else "CPU seconds",
            "test error (1 - accuracy)",
            {
                name: (
                    epochs if kind == "epochs" else each.seconds.tolist(),
                    (1 - each.accuracy).tolist(),
                )
                for name, each in curves.items()
            },
            "y",
        )
        for kind in ("epochs", "seconds")
    ]
    return Outcome([Table(f"{title}, {size.n_epochs} epochs", columns, lines)], plots)


def claims(*tables: list[dict[str, Any]]) -> list[Claim]:
    return [
        Claim(
            f"ADA-FD has a lower {name} than ADA-DIAG, RADAGRAD and FD-SON: {network}.",
            all(figures["ADA-FD"] < figures[each] for each in ("ADA-DIAG", "RADAGRAD", "FD-SON")),
            order(figures),
        )
        for network, rows in zip(("small network", "network of the paper"), tables, strict=False)
        for name, figures in (
            ("training loss", {row["method"]: row["training loss"] for row in rows}),
            ("test error", {row["method"]: 1 - row["test accuracy"] for row in rows}),
        )
    ]


def load(x: Any, y: Any) -> Images:
    """Sparse rows of pixels as square images."""
    side = round(x.shape[1] ** 0.5)
    return Images(torch.tensor(x.toarray()).view(-1, 1, side, side), torch.tensor(y))


def make_network(size: Size, side: int) -> Any:
    """The network of the paper; its weights are drawn from the state of PyTorch's generator."""
    first, second = size.channels
    return nn.Sequential(
        nn.Conv2d(1, first, 3),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(second * ((side - 4) // 2) ** 2, size.n_hidden),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(size.n_hidden, 10),
    )


def make_optimizer(name: str, network: Any, setting: Setting, dense: Setting) -> Any:
    """The optimizer of a method, with a setting of its own for the dense layers."""
    if name == "Adam":
        return torch.optim.Adam(network.parameters(), setting.step_size, eps=setting.delta)
    layers = {True: [], False: []}
    for layer in network:
        layers[isinstance(layer, nn.Conv2d)] += layer.parameters()
    convolutions = {
        "lr": setting.step_size,
        "preconditioner": PRECONDITIONERS[name](delta=setting.delta),
    }
    groups = [{"params": layers[True], **convolutions}, {"params": layers[False]}]
    return AdaGrad(groups, dense.step_size, Diagonal(dense.delta))


def tune(name: str, size: Size, rows: Images, validation: Images, dense: Setting | None) -> Setting:
    """The setting with the least validation loss after one epoch."""
    short = size._replace(n_epochs=1)

    def loss(setting: Setting) -> float:
        try:
            result = learn(name, setting, dense or setting, short, rows, validation, 0).loss[-1]
        except TrainingError:  # it diverged
            return np.inf
        return result if np.isfinite(result) else np.inf

    return min(
        itertools.starmap(Setting, itertools.product(size.step_sizes, size.deltas)), key=loss
    )


def learn(
    name: str, setting: Setting, dense: Setting, size: Size, rows: Images, test: Images, seed: int
) -> Run:
    """Train a network and test it after each epoch."""
    torch.manual_seed(seed)
    network = make_network(size, rows.x.shape[-1])
    optimizer = make_optimizer(name, network, setting, dense)
    result, seconds = Run([], [], [], []), 0.0
    for _ in range(size.n_epochs):
        start, total = time.process_time(), 0.0
        for batch in torch.randperm(len(rows.y)).split(size.batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(rows.x[batch]), rows.y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        seconds += time.process_time() - start
        scores = predict(network, test.x)
        result.training_loss.append(total / len(rows.y))
        result.loss.append(nn.functional.cross_entropy(scores, test.y).item())
        result.accuracy.append((scores.argmax(1) == test.y).double().mean().item())
        result.seconds.append(seconds)
    return result


def predict(network: Any, x: Any) -> Any:
    """Scores without dropout."""
    network.eval()
    with torch.no_grad():
        scores = torch.cat([network(part) for part in x.split(1_000)])
    network.train()
    return scores
