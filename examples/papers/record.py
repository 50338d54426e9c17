"""Records of experiments: tables in Markdown and JSON, plots in SVG and PNG, and their page.

An experiment is a module of this folder with a docstring, whose first line is its title, and a
function ``run(options)`` that returns its tables and plots. Its ``claims(*tables)`` hold the claims
of the paper against the rows of the saved tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

Cell = str | int | float | None
Size = TypeVar("Size")


@dataclass(frozen=True)
class Options:
    """Size and sources of an experiment.

    Attributes
    ----------
    quick : bool
        A small size that shows the same order in seconds.
    data : Path or None
        The folder of public data sets; experiments that need one are left out without it.
    full : bool
        The sizes of the paper, where they take more than some minutes.
    fetch : bool
        Fetch data sets that are not there from the internet.
    """

    quick: bool = False
    data: Path | None = None
    full: bool = False
    fetch: bool = False

    @property
    def size(self) -> str:
        """The option that sets the size; empty for the usual one."""
        return self.choose("--quick", "", "--full")

    def choose(self, quick: Size, usual: Size, full: Size) -> Size:
        """The size that the options ask for."""
        return quick if self.quick else full if self.full else usual

    @property
    def folder(self) -> Path:
        """The folder of data sets."""
        if self.data is None:
            raise MissingData("needs data sets; give their folder by --data FOLDER")
        return self.data


class MissingData(Exception):
    """An experiment needs a data set or a package that is not there."""


@dataclass(frozen=True)
class Table:
    """A table with the figures of the paper beside ours; None is a figure that does not exist."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join("| " + " | ".join(map(show, line)) + " |" for line in lines)


@dataclass(frozen=True)
class Plot:
    """Lines by name, each (x, y), and the axes that are logarithmic: "", "x", "y" or "xy".

    A line whose name is that of an earlier line, a comma and more has its colour, with dashes.
    """

    name: str
    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    log: Literal["", "x", "y", "xy"] = ""

    def save(self, folder: Path) -> None:
        """Write NAME.svg and NAME.png."""
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot

        with pyplot.rc_context({"svg.hashsalt": "dadagrad", "svg.fonttype": "none"}):
            figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
            colours: dict[str, str] = {}
            for label, (xs, ys) in self.lines.items():
                first = label.rpartition(", ")[0]
                n_alike = sum(colour == colours.get(first) for colour in colours.values())
                dashes = ("-", "--", ":", "-.")[n_alike % 4]
                colours[label] = colours.get(first, f"C{len(set(colours.values())) % 10}")
                marker = "o" if dashes == "-" and len(xs) < 20 else ""
                axes.plot(xs, ys, dashes, color=colours[label], marker=marker, ms=3, label=label)
            axes.set(title=self.title, xlabel=self.x, ylabel=self.y)
            if "x" in self.log:
                axes.set_xscale("log")
            if "y" in self.log:
                axes.set_yscale("log")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
            figure.savefig(folder / f"{self.name}.svg", metadata={"Date": None})
            figure.savefig(folder / f"{self.name}.png", dpi=90, metadata={"Software": None})
            pyplot.close(figure)


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and the figures that meet or refute it here."""

    text: str
    is_met: bool
    figures: str


@dataclass(frozen=True)
class Outcome:
    """Tables and plots of one experiment."""

    tables: Sequence[Table]
    plots: Sequence[Plot] = ()


def show(value: Cell) -> str:
    """A cell as it is read: three digits, thousands with commas."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def write(name: str, outcome: Outcome, folder: Path, size: str) -> None:
    """Write NAME.json, the record of an experiment at the `size` of an option."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "size": size,
        "tables": [
            {"title": table.title, "columns": list(table.columns), "rows": table.rows}
            for table in outcome.tables
        ],
        "plots": [asdict(plot) for plot in outcome.plots],
    }
    (folder / f"{name}.json").write_text(json.dumps(document, default=list) + "\n")


def draw(name: str, folder: Path) -> None:
    """Write the plots of NAME.json."""
    for plot in json.loads((folder / f"{name}.json").read_text())["plots"]:
        Plot(**plot).save(folder)


def section(module: ModuleType, name: str, folder: Path) -> str:
    """The part of the page that tells of one experiment, from its NAME.json."""
    saved = json.loads((folder / f"{name}.json").read_text())
    title, _, text = (module.__doc__ or name).strip().partition("\n")
    command = f"python -m examples.papers {name} {saved['size']}".rstrip()
    parts = [f"## {title.rstrip('.')}", text.strip(), f"`{command}`"]
    if saved["size"] == "--quick":
        parts.append("These are figures of a small size (`--quick`): an order, not a result.")
    for table in saved["tables"]:
        parts += [f"**{table['title']}**", Table(**table).markdown()]
    parts += [f"![{plot['title']}]({folder.name}/{plot['name']}.svg)" for plot in saved["plots"]]
    return "\n\n".join(parts)


def claims(module: ModuleType, name: str, folder: Path) -> list[tuple[str, str, str, str]]:
    """Lines of the table of claims for one experiment, from its NAME.json."""
    saved = json.loads((folder / f"{name}.json").read_text())
    return [
        (f"`{name}`", claim.text, "met" if claim.is_met else "refuted", claim.figures)
        for claim in module.claims(*map(records, saved["tables"]))
    ]


def records(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of a saved table by column."""
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def below(rows: Iterable[Mapping[str, Any]], first: str, second: str) -> tuple[int, int]:
    """Number of rows where one column is below another, and number of rows; texts count by their
    first word."""
    pairs = [[float(str(row[name]).split()[0]) for name in (first, second)] for row in rows]
    return sum(a < b for a, b in pairs), len(pairs)


def order(values: Mapping[str, float], *, largest_first: bool = False) -> str:
    """Names with their values, the best first."""
    names = sorted(values, key=lambda name: values[name], reverse=largest_first)
    return ", ".join(f"{name} ({show(values[name])})" for name in names)


def page(sections: Iterable[str], claims: Sequence[Sequence[Cell]]) -> str:
    """README.md of this folder."""
    head = (
        "# Experiments of the papers\n\n"
        "Each script repeats an experiment of one of the five papers on the public interface, and "
        "writes its figures beside the paper's own. Each run of a script writes its section of "
        "this page. This command runs all of them,\n\n"
        "```sh\npython -m examples.papers all --data FOLDER\n```\n\n"
        "at sizes that take some minutes on one core. `--full` has the sizes of the papers, and "
        "takes 5 to 40 minutes for an experiment; the command of each section says at which size "
        "its figures were taken. Times were taken on a busy machine with two cores. The figures "
        "below meet or refute each claim of the papers:"
    )
    table = Table("Claims", ("experiment", "claim", "here", "figures"), claims).markdown()
    return "\n\n".join([head, table, *sections]) + "\n"
