"""The coordinator: owns the state and decides what comes next.

It knows no files, no threads, no clock and no Dask: `handle` takes an event and returns
instructions. An engine or a unit test carries them out and gets the same bits, because results are
combined in the order of the schedule, not of their arrival.

In a round, partitions are opened (some ahead of time, so that reading hides behind computing). The
first slice of each stretch is given features of the state, and so is each next slice when the one
before it has its result; workers of a cluster that hold the state get whole stretches at once. Of
many streams, some come to the end of their stretches before others begin, so that few partitions
are open. At the end of the round the results are combined
(`dadagrad.training.coordinator.combine`): the gradients of a batch make one step, streams are
merged, some features apart from others, and the online pass has changed the state already.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from dadagrad.problem import Problem
from dadagrad.training.coordinator.combine import Progress, combination_of
from dadagrad.training.coordinator.rounds import RoundQueue
from dadagrad.training.messages import (
    Close,
    Compute,
    Computed,
    Event,
    Finish,
    Instruction,
    Merged,
    Opened,
    Place,
    Report,
    Result,
    Save,
    SaveRequested,
    StopRequested,
)
from dadagrad.training.progressive import ProgressiveMetrics, best_setting
from dadagrad.training.schedule import n_side_by_side
from dadagrad.training.schedule.base import Cursor, Round, Schedule
from dadagrad.training.state import count_nonzeros
from dadagrad.training.state.base import TrainingState


class Coordinator:
    """Drives a run from one round to the next.

    An engine carries out all instructions that it gets before it calls again: `go_on`
    for as long as that has instructions, then `handle` with the next event.

    Parameters
    ----------
    state : TrainingState
        Start of the run; changed in place from here on.
    place : Place
        That of the state, as in a checkpoint; the defaults start a new run.
    stop : Cursor or None
        Place where the run ends; None is the end of the schedule.
    save_every : int or None
        Steps after which a `Save` is due; None leaves that to `SaveRequested`.
    prefetch : int
        Partitions opened ahead of those in use.
    remote : bool
        True if the streams' state is on the workers of a cluster, except for its intercept and t.
    """

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        state: TrainingState,
        *,
        place: Place = Place(),  # noqa: B008 (frozen)
        stop: Cursor | None = None,
        save_every: int | None = None,
        prefetch: int = 2,
        remote: bool = False,
    ) -> None:
        self.problem = problem
        self.state = state
        self._schedule = schedule
        self._stop = stop
        self._prefetch = prefetch
        self._combination = combination_of(problem, state, remote=remote)
        self._n_tasks = 0
        self._save_every = save_every
        self._save_wanted = self._stop_wanted = False
        self.go_back(place)

    def go_back(self, place: Place) -> None:
        """Go to a place between two rounds, where `go_on` begins.

        The results of tasks and of readings that are under way must not be reported any more.
        """
        self._finished = False
        self.place = place
        rounds = self._schedule.rounds(place.cursor, self._stop)
        self._rounds = RoundQueue(rounds, self._prefetch, together=not self.problem.online)
        self._round: Round | None = None
        self._stretches: list[Progress] = []
        # Stretches whose next slice has not been issued, those to begin when others are at their
        # end, and how many are not at their end.
        self._waiting: list[Progress] = []
        self._later: deque[Progress] = deque()
        self._n_missing = 0
        self._is_working = False  # on some slice of the present round
        self._n_merges: int | None = None  # left of those that end it; None before they begin
        self._tasks: dict[int, Progress] = {}
        # Of each reading that ends with this round, the slices without a result.
        self._left: Counter[int] = Counter()
        self._closes: list[Instruction] = []
        self._next_save = self._first_save_after(place.steps)
        self._saved: Cursor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the rounds, which a copy begins again at its place."""
        return {name: value for name, value in self.__dict__.items() if name != "_rounds"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.go_back(self.place)

    @property
    def metrics(self) -> ProgressiveMetrics:
        """Metrics of all passes so far."""
        return sum(self.place.passes, start=ProgressiveMetrics.zero(self.problem))

    @property
    def first_metrics(self) -> ProgressiveMetrics:
        """Metrics of the first pass so far, all rows of which are new."""
        return self.place.passes[0] if self.place.passes else self.metrics

    def handle(self, event: Event) -> list[Instruction]:
        """Take note of `event`; the next instructions."""
        if self._finished:
            return []
        match event:
            case Opened(reading):
                self._rounds.opened(reading)
            case Computed(task, results):
                self._take(task, results)
            case Merged():
                assert self._n_merges, "a merge that nobody asked for"
                self._n_merges -= 1
            case SaveRequested():
                self._save_wanted = True
            case StopRequested():
                self._stop_wanted = True
        return self.go_on()

    def go_on(self) -> list[Instruction]:
        """Instructions that need no other event; none if all do."""
        if self._finished:
            return []
        instructions, self._closes = self._closes, []
        if self._round is not None and not self._n_missing:
            if self._n_merges is None:
                merges = self._combination.merges(self._stretches)
                self._n_merges = len(merges)
                instructions += merges
            if not self._n_merges:
                instructions += self._finish_round(self._round)
        if self._stop_wanted and not self._is_working:
            over = self._round is None and self._rounds.is_over
            return [*instructions, *self._finish(complete=over)]
        if self._round is None and not self._begin_round():
            return [*instructions, *self._finish(complete=True)]
        # Work of now goes before reading for later.
        computes = self._issue()
        return [*instructions, *computes, *self._rounds.opens([s.slice_ for s in self._waiting])]

    def _begin_round(self) -> bool:
        self._round = self._rounds.next_round()
        if self._round is None:
            return False
        self._stretches = [Progress(stretch) for stretch in self._round.stretches]
        at_once = len(self._stretches)
        if self.problem.online and not self._combination.gives_stretches:
            at_once = n_side_by_side(self._prefetch)
        self._waiting = self._stretches[:at_once]
        self._later = deque(self._stretches[at_once:])
        self._n_missing = len(self._stretches)
        slices = self._round.slices
        closing = {slice_.reading for slice_ in slices if slice_.last}
        self._left = Counter(s.reading for s in slices if s.reading in closing)
        return True

    def _issue(self) -> list[Instruction]:
        """Have the next slices worked on whose partitions are open; of a batch all at once.

        Workers that hold the state get whole stretches, and read the partitions themselves.
        """
        computes: list[Instruction] = []
        whole = self._combination.gives_stretches
        is_open = [whole or self._rounds.is_open(each.slice_) for each in self._waiting]
        if not self.problem.online and not all(is_open):
            return computes
        waiting = self._waiting
        self._waiting = [each for each, ready in zip(waiting, is_open, strict=True) if not ready]
        for stretch in compress(waiting, is_open):
            slices = stretch.slices if whole else (stretch.slice_,)
            following = [self._rounds.issue(slice_) for slice_ in slices][-1]
            slice_input = self._combination.give(stretch)
            computes.append(Compute(self._n_tasks, slices, slice_input, following))
            self._tasks[self._n_tasks] = stretch
            self._is_working = True
            self._n_tasks += 1
        return computes

    def _take(self, task: int, results: Sequence[Result]) -> None:
        stretch = self._tasks.pop(task)
        for result in results:
            reading = stretch.slice_.reading
            self._combination.take(stretch, result)
            stretch.metrics.append(result.metrics)
            stretch.done += 1
            if reading in self._left:
                self._left[reading] -= 1
                if not self._left[reading]:
                    self._rounds.close(reading)
                    self._closes.append(Close(reading))
        if stretch.done < len(stretch.slices):
            self._waiting.append(stretch)
        else:
            self._n_missing -= 1
            if self._later:
                self._waiting.append(self._later.popleft())

    def _finish_round(self, finished: Round) -> list[Instruction]:
        steps = self.place.steps + self._combination.finish(self._stretches)
        self.place = replace(
            self.place, cursor=finished.after, steps=steps, passes=self._passes_so_far()
        )
        self._round = None
        self._is_working, self._n_merges = False, None
        report = Report(self.place, self.count_nonzeros)
        due = self._save_wanted or (
            self._next_save is not None and self.place.steps >= self._next_save
        )
        return [report, *(self._save() if due else [])]

    def count_nonzeros(self) -> int:
        """Weights other than 0 of the setting with the least progressive loss."""
        counts = count_nonzeros(self.problem, self.state)
        return int(counts[best_setting(self.place.passes)])

    def _passes_so_far(self) -> tuple[ProgressiveMetrics, ...]:
        """The metrics of each pass, with those of the round that ends."""
        passes = list(self.place.passes)
        if self.place.cursor.pass_number == len(passes):
            # Only the scores of the first and of the last pass calibrate.
            passes[1:] = [metrics.without_histogram() for metrics in passes[1:]]
            passes.append(ProgressiveMetrics.zero(self.problem))
        counted = (metrics for stretch in self._stretches for metrics in stretch.metrics)
        return (*passes[:-1], sum(counted, start=passes[-1]))

    def _first_save_after(self, steps: int) -> int | None:
        every = self._save_every
        return None if every is None else (steps // every + 1) * every

    def _save(self) -> list[Instruction]:
        """Have the state kept, unless it has been."""
        if self._saved == self.place.cursor:
            return []
        self._save_wanted = False
        self._next_save = self._first_save_after(self.place.steps)
        self._saved = self.place.cursor
        return [Save(self.place, self.state)]

    def _finish(self, *, complete: bool) -> list[Instruction]:
        self._finished = True
        return [*self._save(), Finish(complete)]
