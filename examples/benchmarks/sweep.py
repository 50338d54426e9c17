"""The cost of a sweep: the processor time of 16 settings in one stream, beside that of one run.

Settings are dropped on the way: of each value of l1 one is trained to the end, and of 16 values
the best 6. Runs alternate, and the least processor time of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import reporting
from measuring import seconds_of
from memory import prepare

from dadagrad import sweep, train
from dadagrad.data.synthetic import Corpus

GOAL = 6.0
STEPS = [0.05 * 2 ** (number / 2) for number in range(16)]
STRENGTHS = [0.0, *(1e-8 * 2**number for number in range(15))]
GRIDS: dict[str, dict[str, Any]] = {
    "16 step sizes": {"step_size": STEPS},
    "8 step sizes, 2 values of l1": {"step_size": STEPS[::2], "l1": [0.0, 1e-6]},
    "4 step sizes, 4 values of l1": {"step_size": STEPS[::4], "l1": [0.0, 1e-7, 1e-6, 1e-5]},
    "16 values of l1": {"step_size": 0.4, "l1": STRENGTHS},
}


def main() -> None:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data = str(prepare(options.folder, Corpus(options.rows, options.features, 66.0)))
    lines = []
    for holdout in (0.0, 0.1):
        runs: dict[str, Callable[[], Any]] = {
            "one": lambda holdout=holdout: train(data, step_size=0.4, l1=1e-6, holdout=holdout)
        }
        for name, grid in GRIDS.items():
            runs[name] = lambda grid=grid, holdout=holdout: sweep(data, holdout=holdout, **grid)
        rounds = [
            [seconds_of(run, time.process_time) for run in runs.values()]
            for _ in range(options.rounds + 1)
        ]
        least = [min(each) for each in zip(*rounds[1:], strict=True)]
        for name, cost in zip(runs, least, strict=True):
            place = "no" if holdout == 0.0 else "a tenth of the rows"
            lines.append([name, place, f"{cost:.2f}", f"{cost / least[0]:.1f}"])
    header = ("settings", "holdout", "s of processor time", "x one")
    text = f"{options.rows:,} rows, {options.features:,} features:\n\n"
    text += reporting.table(header, lines)
    text += f"\n\nGoal: 16 settings at most {GOAL:g} times one run."
    reporting.publish("sweep", text, options.markdown)


if __name__ == "__main__":
    main()
