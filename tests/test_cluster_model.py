"""The model behind `examples/benchmarks/scaling.py`, where its answer can be worked out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "benchmarks"))

from cluster_model import Network, Services, forecast

SERVICES = Services(send=1.0, receive=2.0, schedule=4.0, work=100.0, step=10.0, down=50.0, up=70.0)
NETWORK = Network(latency=5.0, bandwidth=10.0)


def test_a_step_on_one_worker_takes_one_thing_after_the_other():
    """1 + 5 + 5 (link) + 2 + 5 + 100 + 5 + 2 + 7 (link) + 5 + 2 + 10, by hand."""
    made = forecast(SERVICES, NETWORK, workers=1, messages=1, steps=7)
    assert made.seconds == pytest.approx(149.0)
    assert made.workers == pytest.approx(100.0 / 149.0)
    assert made.coordinator == pytest.approx(13.0 / 149.0)
    assert made.bottleneck == "workers"


def test_several_messages_wait_for_each_other_where_they_meet():
    """The second is sent 1 later, and its link is free 5 after the first: the last is 5 behind."""
    alone = forecast(SERVICES, NETWORK, workers=1, messages=1, steps=1).seconds
    two = forecast(SERVICES, NETWORK, workers=2, messages=2, steps=1).seconds
    assert two == pytest.approx(alone + 7.0)  # the slower of the links they share: the one back


def test_delay_keeps_the_worker_busy():
    """With enough steps on their way, a step takes as long as the busiest server."""
    made = forecast(SERVICES, NETWORK, workers=1, messages=1, delay=3, steps=400)
    assert made.seconds == pytest.approx(100.0, rel=0.01)


def test_delay_changes_nothing_where_the_coordinator_is_saturated():
    busy = Services(send=1.0, receive=1.0, schedule=0.0, work=1.0, step=50.0, down=0.0, up=0.0)
    for delay in (0, 1, 5):
        made = forecast(busy, NETWORK, workers=64, messages=64, delay=delay, steps=50)
        assert made.seconds >= 64 * 2 + 50
        assert made.bottleneck == "coordinator"


def test_shared_processors_do_one_thing_at_a_time():
    """On one processor nothing overlaps but the network."""
    free = Network(latency=0.0, bandwidth=1e12)
    made = forecast(SERVICES, free, workers=4, messages=4, cores=1, steps=5)
    assert made.seconds == pytest.approx(4 * (1.0 + 2.0 + 4.0 + 100.0) + 10.0)


def test_more_workers_than_messages_have_nothing_to_do():
    few = forecast(SERVICES, NETWORK, workers=4, messages=4)
    many = forecast(SERVICES, NETWORK, workers=100, messages=4)
    assert many.seconds == few.seconds
    assert many.workers == pytest.approx(few.workers / 25)


def test_what_slows_everything_down_slows_steps_as_much():
    free = Network(latency=0.0, bandwidth=1e12)
    alone, slowed = (
        forecast(services, free, workers=2, messages=2, cores=1, steps=5)
        for services in (SERVICES, SERVICES.slowed(1.5))
    )
    assert slowed.seconds == pytest.approx(1.5 * alone.seconds)
    assert (SERVICES.slowed(1.5).down, SERVICES.slowed(1.5).up) == (SERVICES.down, SERVICES.up)
