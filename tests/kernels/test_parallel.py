"""Jobs shared out among threads: each is done once, whoever is busy."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dadagrad.kernels.parallel import serial, threaded


@pytest.mark.parametrize(("threads", "n_jobs"), [(1, 2), (2, 0), (2, 50), (5, 1)])
def test_each_job_is_done_once(threads, n_jobs):
    done = []
    with ThreadPoolExecutor(threads) as pool:
        threaded(pool, threads)(done.append, n_jobs)
    assert sorted(done) == list(range(n_jobs))
    done.clear()
    serial(done.append, n_jobs)
    assert done == list(range(n_jobs))


def test_other_threads_help():
    """Two jobs that wait for each other can only end on two threads."""
    meeting = threading.Barrier(2, timeout=60)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(threaded(pool, 2), lambda number: meeting.wait() and None, 2).result()


def test_a_pool_that_is_busy_is_not_waited_for():
    """The only thread of the pool shares out jobs, and a second one holds it up for ever."""
    done = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(threaded(pool, 3), done.append, 4).result(timeout=60)
    assert done == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [0, 7])
def test_an_error_of_any_thread_is_raised_when_all_have_ended(bad):
    running = threading.Semaphore(0)

    def job(number):
        if number == bad:
            raise ValueError(f"job {number}")
        running.release()

    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match=f"job {bad}"):
        threaded(pool, 3)(job, 8)
