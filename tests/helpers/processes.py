"""Processes that are there for a block, and waiting for what they do."""

import contextlib
import random
import socket
import subprocess
import sys
import time

START_SECONDS = 60.0


@contextlib.contextmanager
def running(command, *, environment=None, log=None, folder=None, patience=10.0):
    """A process that is told to end at the end of the block, and made to after `patience` seconds.

    `environment` has all its variables, those of this process by default. `log` takes what it
    writes, which is then said with any error in the block. It works in `folder`.
    """
    with contextlib.ExitStack() as stack:
        output = subprocess.DEVNULL if log is None else stack.enter_context(log.open("wb"))
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, cwd=folder
        )
        try:
            yield process
        except BaseException as error:
            if log is not None:
                error.add_note(f"{command} wrote:\n{log.read_text(errors='replace')}")
            raise
        finally:
            process.terminate()
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_python(*arguments, code=0, **options):
    """A Python process that has ended with this code; `options` are those of `subprocess.run`."""
    command, pipe = [sys.executable, *map(str, arguments)], subprocess.PIPE
    usual = {"stdout": pipe, "stderr": pipe, "text": True, "timeout": 100}
    done = subprocess.run(command, **usual | options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def local_cluster(n_workers, **options):
    """Dask's own cluster of this machine, with workers of one thread and no dashboard."""
    from distributed import LocalCluster

    usual = {"threads_per_worker": 1, "dashboard_address": None}
    scheduler = {"dashboard_address": ":0"}
    return LocalCluster(n_workers=n_workers, scheduler_kwargs=scheduler, **usual | options)


def free_port():
    """A port of the loopback interface that nothing listens on.

    Not one of those that the system gives to outgoing connections: workers that try to reach a
    scheduler that has gone would be connected to themselves one day, and keep its port.
    """
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_for_port(port):
    wait_until(lambda: answers(port), START_SECONDS, f"something to listen at port {port}")


def wait_until(condition, seconds, what):
    """Wait until `condition` holds; `TimeoutError` where it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} seconds for {what}")
        time.sleep(0.02)
