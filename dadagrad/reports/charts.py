"""Pictures of a report: lines over two axes, which `elements.html` draws as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dadagrad.summary import short


def plain_percent(share: float) -> str:
    """A share on an axis, without digits that are 0."""
    return f"{100 * share:.4g} %"


def plain_count(amount: float) -> str:
    """A count on an axis, such as 20 k."""
    number, _, unit = short(amount).partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}".rstrip() if unit else number


def plain_number(value: float) -> str:
    """A number on an axis, without digits that are 0; a large one as a count."""
    return plain_count(value) if 1e4 <= value < 1e12 else f"{value:.4g}"


Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis from `low` to `high`, linear or logarithmic; `show` formats the value of a tick."""

    label: str
    low: float
    high: float
    log: bool = False
    show: Callable[[float], str] = plain_number

    @classmethod
    def over(
        cls,
        values: Sequence[float],
        label: str,
        *,
        log: bool = False,
        show: Callable[[float], str] = plain_number,
    ) -> Axis:
        """Axis over all of the finite `values`, at least one of which is needed."""
        low, high = min(values), max(values)
        if log:
            low = max(low, min((value for value in values if value > 0), default=1.0))
            high = max(high, low * 1.0001)
            return cls(label, low, high, True, show)
        margin = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
        return cls(
            label, max(0.0, low - margin) if low >= 0 else low - margin, high + margin, show=show
        )

    def share(self, value: float) -> float:
        """Place of a value on the axis, 0 to 1."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return (value - low) / (high - low) if high > low else 0.5

    def ticks(self) -> list[float]:
        """Round values within the axis: three to seven, fewer on a short logarithmic one."""
        if self.log and self.high / self.low >= 10.0:
            decades = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            ticks = [10.0**power for power in decades[:: max(1, math.ceil(len(decades) / 6))]]
            if len(ticks) > 2:
                return ticks
            between = [factor * 10.0 ** (decades[0] - 1) for factor in (2, 5)] if decades else []
            between += [factor * tick for tick in ticks for factor in (2, 5)]
            return sorted(value for value in [*ticks, *between] if self.low <= value <= self.high)
        span = self.high - self.low
        unit = 10.0 ** math.floor(math.log10(span / 4.0))
        step: float = unit * next(
            factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= span / 6.0
        )
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Series:
    """Named line, with a note at each point if there are `labels`; `style` is its CSS class."""

    name: str
    points: Sequence[Point]
    style: str = "a"
    dots: bool = False
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines and points over two axes; all places are those of the picture."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    width: int = 460
    height: int = 280
    left: int = 52
    right: int = 444
    top: int = 28
    bottom: int = 240

    def _x_place(self, value: float) -> float:
        return round(self.left + (self.right - self.left) * self.x.share(value), 1)

    def _y_place(self, value: float) -> float:
        return round(self.bottom - (self.bottom - self.top) * self.y.share(value), 1)

    @property
    def columns_of_grid(self) -> list[tuple[float, str]]:
        """Place and text of each tick of the axis below."""
        return [(self._x_place(value), self.x.show(value)) for value in self.x.ticks()]

    @property
    def rows_of_grid(self) -> list[tuple[float, str]]:
        """Place and text of each tick of the axis at the left."""
        return [(self._y_place(value), self.y.show(value)) for value in self.y.ticks()]

    def places(self, series: Series) -> list[Point]:
        return [(self._x_place(x), self._y_place(y)) for x, y in series.points]

    def notes(self, series: Series) -> Iterator[tuple[float, float, str, str]]:
        """Place, anchor and text of the labels that do not lie on one another."""
        reached = -math.inf
        for (a, b), text in sorted(zip(self.places(series), series.labels, strict=False)):
            ends_here, width = a > self.width - 90, 8 * len(text)
            begin = a - 6 - width if ends_here else a + 6
            if text and begin > reached:
                reached = begin + width
                yield (a - 6, b - 7, "end", text) if ends_here else (begin, b - 7, "start", text)
