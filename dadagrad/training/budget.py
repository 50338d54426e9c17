"""What a run will take, before it runs: memory here and on a worker, and what each step moves.

Memory is what is taken at the worst moment if all features occur, which is one of three: while step
sizes are tried, while rows are learned from, and while the model is made. It is found from the
shapes of the state's arrays, which are exact, and from the metadata of the data (see
`dadagrad.training.traffic`), which give estimates. Nothing is read, and nothing large is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from dadagrad.algorithm import has_step_size
from dadagrad.data.dataset import Dataset
from dadagrad.method import Method
from dadagrad.training.plan import Plan
from dadagrad.training.states import CHUNK_WEIGHTS, feature_bytes, state_bytes
from dadagrad.training.step_size import GRID, KEPT, first_partitions
from dadagrad.training.stream_traffic import follow_streams
from dadagrad.training.streams import StreamPlan
from dadagrad.training.traffic import Walk, decoded_bytes, distinct, follow, reading_bytes

_MARGINS = 3
"""Arrays of the size of the margins that there are while rows are counted."""
_COUPLED_MARGINS = 6
"""The same where the loss couples outputs."""
_PLAIN_VECTORS = 8
"""Of all features, that there are while a plain algorithm makes a step."""
_LEARNER_VECTORS = 4
_MESSAGES = 3
"""Times that what is on its way is in memory: the arrays, their message, the scheduler's."""
_SPENT = 16 << 20
"""Of tasks that are done, and of which the scheduler still knows."""
_HELD_BACK = 24 << 20
"""Of the memory of the trial, that the C library gives to nobody afterwards; about."""
CLIENT_LIBRARIES = 30 << 20
"""What the client of a cluster takes beside what there is without one."""
WORKER_LIBRARIES = 230 << 20
"""A worker before it has anything to do."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Memory of the process that trains, beside what it takes before; bytes.

    Attributes
    ----------
    state : int
        Its arrays.
    checkpoint : int
        The copy that is written while training goes on. A store that takes longer for it than
        there is time between two checkpoints makes it two.
    sums : int
        Where the sums of a batch are kept, feature by feature.
    rows : int
        Partitions that are open, and what reading the next one takes.
    step : int
        What a step works with, or what is on its way to and from workers.
    model : int
        The weights that are not 0, while the state is still there.
    trial : int
        The states of the step sizes that are tried, and their rows; before there is any other.
    libraries : int
        Of the client of a cluster.
    """

    state: int
    checkpoint: int
    sums: int
    rows: int
    step: int
    model: int
    trial: int
    libraries: int

    @property
    def total(self) -> int:
        """At the worst moment."""
        lasting = self.state + self.checkpoint + self.sums
        run = lasting + max(self.rows + self.step, self.model)
        return self.libraries + max(self.trial, run + min(_HELD_BACK, self.trial // 2))


@dataclass(frozen=True, slots=True)
class Worker:
    """Memory of one worker; bytes.

    Attributes
    ----------
    libraries : int
        Of the process, before there is anything to do.
    reading : int
        The rows of a partition for each thread, and what reading them takes.
    step : int
        Weights and gradients of the pieces in work.
    rows : int
        Decoded partitions that are worth keeping, of all workers together: those that are open,
        and in several passes all there are.
    """

    libraries: int
    reading: int
    step: int
    rows: int

    @property
    def least(self) -> int:
        """What it cannot do without."""
        return self.libraries + self.reading + self.step


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run takes.

    Attributes
    ----------
    coordinator : Coordinator
    worker : Worker or None
        None where there is no cluster.
    steps : int
        Of all passes together.
    mean_down, mean_up : float
        Bytes that move for a step to and from workers; 0 without a cluster.
    """

    coordinator: Coordinator
    worker: Worker | None
    steps: int
    mean_down: float
    mean_up: float


def make_budget(
    data: Dataset,
    method: Method,
    plan: Plan | StreamPlan,
    *,
    on_dask: bool,
    threads: int = 1,
    worker_threads: int = 1,
    checkpoints: bool = False,
) -> Budget:
    """What training `method` by `plan` on `data` takes.

    `threads` are those of this process, `worker_threads` those of each worker.
    """
    merging = 0
    if isinstance(plan, StreamPlan):
        walk = follow_streams(data, method, plan)
        merging, plan = _merging(method, walk), plan.walk
    else:
        walk = follow(data, method, plan)
    state = state_bytes(method)
    rows = _local_rows(data, walk, threads)
    coordinator = Coordinator(
        state=state,
        checkpoint=state if checkpoints else 0,
        sums=_sums(method, plan),
        rows=walk.vocabulary_bytes if on_dask else rows,
        step=_plain(method, state) + (_messages(method, walk) if on_dask else 0)
        + (0 if on_dask and not method.online else _local_step(data, method, walk, threads))
        + _total(method, walk) + merging,
        model=_model(data, method),
        trial=_trial(data, method, plan, threads),
        libraries=CLIENT_LIBRARIES if on_dask else 0,
    )  # fmt: skip
    worker = _worker(data, method, walk, worker_threads) if on_dask else None
    down, up = (walk.mean_down, walk.mean_up) if on_dask else (0.0, 0.0)
    return Budget(coordinator, worker, n_steps(plan), down, up)


def n_steps(plan: Plan) -> int:
    """Steps of all passes, if every row counts."""
    return plan.passes * -(-sum(plan.partition_rows) // plan.batch_size)


def _sums(method: Method, plan: Plan) -> int:
    """What finds the distinct features of a step, where several pieces make one."""
    several = min(plan.lanes, sum(map(bool, plan.partition_rows))) > 1
    return _distinct_ids(method) if several and not method.online else 0


def _distinct_ids(method: Method) -> int:
    """The maps of `DistinctIds`."""
    return method.n_features // 5


def _local_rows(data: Dataset, walk: Walk, threads: int) -> int:
    largest = max((reading_bytes(data, partition) for partition in data.partitions), default=0)
    return walk.open_bytes + max(1, threads - 1) * largest


def _margins(method: Method, walk: Walk) -> int:
    arrays = _COUPLED_MARGINS if method.loss.couples else _MARGINS
    return arrays * 8 * method.n_outputs * walk.piece_rows


def _walking(data: Dataset, method: Method, threads: int) -> int:
    """The shares of the state that threads walk on: each of them has that of one bundle."""
    n_local = max((partition.n_local for partition in data.partitions), default=0)
    at_once = min(threads, method.n_bundles)
    # The memory is a bit larger, so as to do for the next partition as well.
    of_feature = 9 * method.bundle_width + 8 * (method.config.update == "mirror-descent")
    return at_once * n_local * of_feature


def _local_step(data: Dataset, method: Method, walk: Walk, threads: int) -> int:
    """The shares of the state that are walked; or weights, gradients and relabelled indices."""
    if method.config.exchange == "local-steps":
        # Each stream has one of all outputs, and a copy to tell what it has changed.
        in_work = 4 * walk.piece_nnz + 2 * feature_bytes(method) * walk.piece_touched
        return threads * (in_work + _margins(method, walk))
    if method.online:
        shares = _walking(data, method, threads) if method.compiled else 0
        return _margins(method, walk) + shares
    in_work = 4 * walk.piece_nnz + _margins(method, walk)
    in_work += 4 * method.n_outputs * walk.piece_touched
    return threads * in_work + walk.step_touched * (24 + 8 * method.n_outputs)


def _total(method: Method, walk: Walk) -> int:
    """The sums of batches in float64, the mean of one, and the share of the state that it changes.

    With a delay of k these are the sums of k + 1 batches that are under way, the oldest of which
    may be the last to be done, and of the k before them; and squares for what they had not seen.
    """
    if method.online:
        return 0
    delay, vector = method.delay, 8 * method.n_outputs
    arrays = 1 + (method.config.squares == "example")
    kept = (1 + 2 * delay) * (8 + arrays * vector)
    return walk.step_touched * (kept + 2 * vector * (2 if delay else 1))


def _merging(method: Method, walk: Walk) -> int:
    """What the streams of a round have changed, and the sums over them."""
    of_feature = feature_bytes(method)
    union = min(walk.step_touched, method.n_features)
    # Bundles are merged one after the other, but for those of mirror descent.
    lazy = method.config.update == "mirror-descent"
    at_once = method.n_outputs if lazy else method.bundle_width
    of_union = 8 + 2 * of_feature + 36 * at_once
    return walk.step_touched * (12 + of_feature) + union * of_union + _distinct_ids(method)


def _plain(method: Method, state: int) -> int:
    """All features at once, several times over; learners that keep to a row's do without."""
    if method.compiled or getattr(method.algorithm, "local", False):
        return 0
    vector = 8 * method.n_features * method.n_outputs
    if state >= method.n_features * vector:
        # A matrix over pairs of features is decomposed in memory of its own.
        return 3 * state
    return (_LEARNER_VECTORS if method.learns_by_row else _PLAIN_VECTORS) * vector


def _messages(method: Method, walk: Walk) -> int:
    return _MESSAGES * (1 + method.delay) * walk.step_bytes + _SPENT


def _model(data: Dataset, method: Method) -> int:
    of_feature = 8 + 4 * method.n_outputs
    if not method.compiled:
        return 22 * method.n_features * method.n_outputs
    chunk = min(CHUNK_WEIGHTS, method.n_features * method.n_outputs)
    # Several bundles are copied for it.
    of_weight = 9 + (feature_bytes(method) // method.n_outputs if method.n_bundles > 1 else 0)
    return distinct(method.n_features, data.partitions) * of_feature + of_weight * chunk


def _trial(data: Dataset, method: Method, plan: Plan, threads: int) -> int:
    """What it takes to try step sizes: their states, and the partitions held at a time.

    Those are the ones kept for the run, one in use and the next.
    """
    config = method.config
    if config.step_size != "auto" or not has_step_size(config):
        return 0
    chosen = [
        data.partitions[number] for number, _ in first_partitions(data, plan, method.compiled)
    ]
    read = [data.partitions[number] for number in plan.order(0)[: max(len(chosen), KEPT)]]
    rows = sum(sorted(decoded_bytes(data, partition) for partition in read)[-KEPT - 2 :])
    rows += KEPT * max(reading_bytes(data, partition) for partition in read)
    if not method.compiled:
        return rows + threads * (state_bytes(method) + _plain(method, state_bytes(method)))
    n_features = distinct(method.n_features, chosen)
    vocabularies = 8 * n_features + 8 * sum(partition.n_local for partition in chosen)
    # Each thread walks on the share of a bundle, which is as large in every trial.
    lazy = 8 * (config.update == "mirror-descent")
    n_local = max(partition.n_local for partition in chosen)
    shares = threads * n_local * (9 * method.bundle_width + lazy)
    # Through a single partition no more go at a time than there are threads.
    at_once = len(GRID) if len(chosen) > 1 else min(threads, len(GRID))
    states = at_once * n_features * feature_bytes(method)
    return rows + vocabularies + states + shares


def _worker(data: Dataset, method: Method, walk: Walk, threads: int) -> Worker:
    most = max(
        (decoded_bytes(data, one) + reading_bytes(data, one) for one in data.partitions), default=0
    )
    in_work = 4 * walk.piece_nnz + _margins(method, walk)
    rows = walk.open_bytes
    if method.config.passes > 1:
        rows = sum(decoded_bytes(data, partition) for partition in data.partitions)
    step = threads * in_work + 2 * walk.step_bytes
    return Worker(WORKER_LIBRARIES, threads * most, step, rows)
