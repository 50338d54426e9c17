"""Run a `dadagrad` command on Dask workers that are SLURM jobs, and end them after it.

    python cluster/slurm.py JOBS train DATA --checkpoints URL --model URL --or-resume

The configuration of dask-jobqueue sets cores, memory, partition and wall time: see slurm.sh.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from dask_jobqueue import SLURMCluster


def main() -> int:
    jobs, *command = sys.argv[1:]
    with SLURMCluster() as cluster:
        # Replaces jobs that end: at their time limit, by preemption, or by a crash.
        cluster.adapt(minimum_jobs=int(jobs), maximum_jobs=int(jobs))
        run = [sys.executable, "-m", "dadagrad", *command, "--scheduler", cluster.scheduler_address]
        # In its own process, so that it does not hold up the scheduler in this one.
        with subprocess.Popen(run) as coordinator:
            signal.signal(signal.SIGTERM, lambda *_: coordinator.terminate())
            return coordinator.wait()


if __name__ == "__main__":
    sys.exit(main())
