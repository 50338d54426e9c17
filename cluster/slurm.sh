#!/bin/bash
#SBATCH --job-name=dadagrad
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#
# Runs the scheduler and the coordinator, and submits jobs of workers. From the root of the repository:
#     sbatch cluster/slurm.sh JOBS train DATA --checkpoints URL --model URL --or-resume
# Two minutes before its time limit it saves a checkpoint, stops and queues itself again.

# Settings of each job of workers; every setting of dask-jobqueue can be set like this.
export DASK_JOBQUEUE__SLURM__CORES="${DASK_JOBQUEUE__SLURM__CORES:-16}"
export DASK_JOBQUEUE__SLURM__PROCESSES="${DASK_JOBQUEUE__SLURM__PROCESSES:-16}"
export DASK_JOBQUEUE__SLURM__MEMORY="${DASK_JOBQUEUE__SLURM__MEMORY:-32GB}"
export DASK_JOBQUEUE__SLURM__WALLTIME="${DASK_JOBQUEUE__SLURM__WALLTIME:-04:00:00}"
# Workers leave before they are killed, not all at once.
lifetime='["--lifetime", "230m", "--lifetime-stagger", "5m"]'
export DASK_JOBQUEUE__SLURM__WORKER_EXTRA_ARGS="${DASK_JOBQUEUE__SLURM__WORKER_EXTRA_ARGS:-$lifetime}"
# Dask settings of this job, which runs the scheduler, and of the jobs of workers.
export DASK_CONFIG="${DASK_CONFIG:-${SLURM_SUBMIT_DIR:-.}/cluster/dask.yaml}"
# Jobs of workers may wait in the queue.
export DASK_DADAGRAD__WORKERS_TIMEOUT="${DASK_DADAGRAD__WORKERS_TIMEOUT:-12h}"

python "${SLURM_SUBMIT_DIR:-.}/cluster/slurm.py" "$@" &
run=$!
again=
trap 'again=yes; kill -TERM "$run"' USR1
trap 'kill -TERM "$run"' TERM
status=0
while wait "$run"; status=$?; kill -0 "$run" 2>/dev/null; do :; done # a signal interrupts it
if [ -n "$again" ] && [ "$status" -eq 143 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
