"""Pictures of a report as SVG text: lines over two axes, and bars.

Colours and fonts come from the style sheet of the page, so that a picture follows its light or dark
theme. All texts are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from dadagrad.summary import percent, short


def plain_percent(share: float) -> str:
    """A share on an axis, without digits that are 0."""
    return f"{100 * share:.4g} %"


def plain_count(amount: float) -> str:
    """A count on an axis, such as 20 k."""
    number, _, unit = short(amount).partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}".rstrip() if unit else number


def plain_number(value: float) -> str:
    """A number on an axis, without digits that are 0."""
    return f"{value:.4g}"


Point = tuple[float, float]

WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 28, 40
"""Margins for the texts of the axes."""


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
        """Round values within the axis, about five."""
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
            factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= span / 5.0
        )
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Series:
    """Named line, or points joined by none; `style` is a class of the style sheet."""

    name: str
    points: Sequence[Point]
    style: str = "a"
    line: bool = True
    dots: bool = False
    labels: Sequence[str] = ()


def line_chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Lines and points over two axes, with a legend below where several have names."""
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: Point) -> Point:
        return LEFT + across * x.share(point[0]), TOP + down * (1.0 - y.share(point[1]))

    parts = [_grid(x, y, across, down)]
    for each in series:
        places = [place(point) for point in each.points]
        if each.line and len(places) > 1:
            path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
            parts.append(f'<path class="line {each.style}" d="{path}"/>')
        if each.dots or len(places) == 1:
            parts += [
                f'<circle class="{each.style}" cx="{a:.1f}" cy="{b:.1f}" r="3.5"/>'
                for a, b in places
            ]
        reached = -math.inf
        for (a, b), label in sorted(zip(places, each.labels, strict=False)):
            if label and a - reached > 60:
                reached = a
                anchor = "end" if a > WIDTH - 90 else "start"
                shift = -6 if anchor == "end" else 6
                parts.append(
                    f'<text class="note" x="{a + shift:.1f}" y="{b - 7:.1f}" '
                    f'text-anchor="{anchor}">{escape(label)}</text>'
                )
    named = [each for each in series if each.name]
    return _svg(title, WIDTH, HEIGHT, parts) + (_legend(named) if len(named) > 1 else "")


def _grid(x: Axis, y: Axis, across: float, down: float) -> str:
    """Lines and texts of the ticks, and the labels of the axes."""
    parts = []
    for value in y.ticks():
        at = TOP + down * (1.0 - y.share(value))
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{LEFT + across}"/>')
        parts.append(
            f'<text x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">'
            f"{escape(y.show(value))}</text>"
        )
    base = TOP + down
    for value in x.ticks():
        at = LEFT + across * x.share(value)
        parts.append(f'<path class="grid" d="M{at:.1f} {base}v5"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{base + 18}" text-anchor="middle">'
            f"{escape(x.show(value))}</text>"
        )
    parts.append(f'<path class="axis" d="M{LEFT} {base}h{across}"/>')
    parts.append(
        f'<text class="label" x="{LEFT + across / 2}" y="{HEIGHT - 5}" '
        f'text-anchor="middle">{escape(x.label)}</text>'
    )
    parts.append(
        f'<text class="label" x="{LEFT}" y="14" text-anchor="start">{escape(y.label)}</text>'
    )
    return "".join(parts)


def _legend(series: Sequence[Series]) -> str:
    """Names of the lines, each after a piece of its line."""
    names = "".join(
        '<li><svg class="key" viewBox="0 0 20 8" aria-hidden="true">'
        f'<path class="line {each.style}" d="M1 4h18"/></svg>{escape(each.name)}</li>'
        for each in series
    )
    return f'<ul class="legend">{names}</ul>'


def bar_row(shares: Sequence[tuple[str, float]]) -> str:
    """One bar that parts share by their size, as HTML with a text for each part."""
    total = sum(value for _, value in shares) or 1.0
    parts = "".join(
        f'<span class="part p{number}" style="width:{100 * value / total:.2f}%"></span>'
        for number, (_, value) in enumerate(shares)
    )
    names = "".join(
        f'<li><i class="p{number}"></i>{escape(name)} {percent(value / total)}</li>'
        for number, (name, value) in enumerate(shares)
    )
    return f'<div class="stack" aria-hidden="true">{parts}</div><ul class="legend">{names}</ul>'


def _svg(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
