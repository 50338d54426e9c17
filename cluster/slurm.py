"""Runs a `dadagrad` command on Dask workers that are SLURM jobs, and ends them after it.

    python cluster/slurm.py JOBS train DATA --checkpoints URL --model URL --or-resume

What a job is (cores, memory, partition, wall time) is dask-jobqueue's configuration: see slurm.sh.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from dask_jobqueue import SLURMCluster


def main() -> int:
    jobs, *command = sys.argv[1:]
    with SLURMCluster() as cluster:
        # Jobs that end are replaced: those whose time is up, preempted ones, and crashed ones.
        cluster.adapt(minimum_jobs=int(jobs), maximum_jobs=int(jobs))
        run = [sys.executable, "-m", "dadagrad", *command, "--scheduler", cluster.scheduler_address]
        # A process of its own, so that the scheduler in this one does not wait for it.
        with subprocess.Popen(run) as coordinator:
            signal.signal(signal.SIGTERM, lambda *_: coordinator.terminate())
            return coordinator.wait()


if __name__ == "__main__":
    sys.exit(main())
