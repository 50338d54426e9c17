"""A model of a step on a cluster: who is busy when, from measured service times.

Five kinds of servers, each of which does one thing after the other: the coordinator, the scheduler
that its messages pass, the link into which the coordinator sends, the one from which it receives,
and the workers. A step sends one message to each worker that takes part; every message is handled
by the coordinator, travels, is handled by the scheduler, worked on, and comes back the same way.
With a delay, steps that are under way together ask other workers, in turns.
When all results of a step are there, the coordinator adds them and steps, which lets the step
after the next `delay` begin.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Services:
    """Seconds of processor time, and bytes, of one message and of one step.

    Attributes
    ----------
    send, receive : float
        Of the coordinator for one message and for its result.
    schedule : float
        Of the scheduler, for a message and its result together.
    work : float
        Of a worker on one message.
    step : float
        Of the coordinator, to add up the results of a step and to make it.
    down, up : float
        Bytes of a message and of its result.
    """

    send: float
    receive: float
    schedule: float
    work: float
    step: float
    down: float
    up: float

    def slowed(self, factor: float) -> Services:
        """The same where everything takes `factor` times as long; bytes stay."""
        times = ("send", "receive", "schedule", "work", "step")
        return replace(self, **{name: factor * getattr(self, name) for name in times})


@dataclass(frozen=True)
class Network:
    """Seconds for a message to get from one machine to another, and bytes a second of a link."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Forecast:
    """Seconds of a step, and the shares of the time for which each is busy."""

    seconds: float
    coordinator: float
    scheduler: float
    links: float
    workers: float

    @property
    def bottleneck(self) -> str:
        """What is busy for most of the time; latency, where nothing is for half of it."""
        shares = {
            "coordinator": self.coordinator,
            "scheduler": self.scheduler,
            "network": self.links,
            "workers": self.workers,
        }
        name = max(shares, key=lambda key: shares[key])
        return name if shares[name] >= 0.5 else "latency"


@dataclass
class _Cores:
    """Processors that several servers share; None of them where each has one of its own."""

    free: list[float] | None

    def begin(self, now: float, seconds: float) -> float:
        if self.free is None:
            return now
        begin = max(now, heapq.heappop(self.free))
        heapq.heappush(self.free, begin + seconds)
        return begin


@dataclass
class _Server:
    """Does one thing after the other, in the order in which they are asked for."""

    cores: _Cores
    free: float = 0.0
    busy: float = 0.0

    def use(self, now: float, seconds: float) -> float:
        """When something of `seconds` that is asked for `now` is done."""
        begin = self.cores.begin(max(now, self.free), seconds)
        self.free = begin + seconds
        self.busy += seconds
        return self.free


@dataclass
class _Run:
    """Events in the order of time; each is a function of the time at which it happens."""

    services: Services
    network: Network
    messages: int
    delay: int
    turns: int
    steps: int
    coordinator: _Server
    scheduler: _Server
    down: _Server
    up: _Server
    workers: list[_Server]
    events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    missing: list[int] = field(default_factory=list)
    done: int = 0

    def at(self, time: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (time, next(self.numbers), event))

    def run(self) -> float:
        """The time at which the last step is made."""
        self.missing = [self.messages] * self.steps
        for step in range(min(self.delay + 1, self.steps)):
            self.begin(0.0, step)
        now = 0.0
        while self.events:
            now, _, event = heapq.heappop(self.events)
            event(now)
        return now

    def begin(self, now: float, step: int) -> None:
        first = step % self.turns * self.messages
        for message in range(first, first + self.messages):
            worker = self.workers[message % len(self.workers)]
            self.at(
                self.coordinator.use(now, self.services.send),
                lambda time, worker=worker: self.travel_down(time, worker, step),  # type: ignore[misc]
            )

    def travel_down(self, now: float, worker: _Server, step: int) -> None:
        sent = self.down.use(now, self.services.down / self.network.bandwidth)
        self.at(sent + self.network.latency, lambda time: self.assign(time, worker, step))

    def assign(self, now: float, worker: _Server, step: int) -> None:
        assigned = self.scheduler.use(now, self.services.schedule / 2)
        self.at(assigned + self.network.latency, lambda time: self.work(time, worker, step))

    def work(self, now: float, worker: _Server, step: int) -> None:
        worked = worker.use(now, self.services.work)
        self.at(worked + self.network.latency, lambda time: self.report(time, step))

    def report(self, now: float, step: int) -> None:
        reported = self.scheduler.use(now, self.services.schedule / 2)
        self.at(reported, lambda time: self.travel_up(time, step))

    def travel_up(self, now: float, step: int) -> None:
        sent = self.up.use(now, self.services.up / self.network.bandwidth)
        self.at(sent + self.network.latency, lambda time: self.receive(time, step))

    def receive(self, now: float, step: int) -> None:
        received = self.coordinator.use(now, self.services.receive)
        self.at(received, lambda time: self.received(time, step))

    def received(self, now: float, step: int) -> None:
        self.missing[step] -= 1
        if step == self.done:
            self.step_if_complete(now)

    def step_if_complete(self, now: float) -> None:
        if self.done < self.steps and self.missing[self.done] == 0:
            self.at(self.coordinator.use(now, self.services.step), self.stepped)

    def stepped(self, now: float) -> None:
        following = self.done + self.delay + 1
        self.done += 1
        if following < self.steps:
            self.begin(now, following)
        self.step_if_complete(now)


def forecast(
    services: Services,
    network: Network,
    workers: int,
    messages: int,
    delay: int = 0,
    turns: int = 1,
    cores: int | None = None,
    steps: int = 200,
) -> Forecast:
    """What a step takes with `workers` workers, of which each step asks `messages`.

    Steps ask others in `turns`.
    `cores` is how many processors the coordinator, the scheduler and the workers share; None
    stands for one of its own for each.
    """
    shared = _Cores(None if cores is None else [0.0] * cores)
    links = _Cores(None)
    run = _Run(
        services, network, messages, delay, turns, steps,
        _Server(shared), _Server(shared), _Server(links), _Server(links),
        [_Server(shared) for _ in range(workers)],
    )  # fmt: skip
    seconds = run.run()
    return Forecast(
        seconds / steps,
        run.coordinator.busy / seconds,
        run.scheduler.busy / seconds,
        max(run.down.busy, run.up.busy) / seconds,
        sum(worker.busy for worker in run.workers) / seconds / workers,
    )
