#!/bin/bash
# A Ray cluster inside of an allocation of Slurm: sbatch slurm.sh rlwb run --set train.actors=96 --set backtest.actors=96
# What is given behind the name of the script is run on the first node, and may use all nodes.
#SBATCH --job-name=rlwb
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=64G
#SBATCH --time=12:00:00
#SBATCH --output=rlwb-%j.log
set -euo pipefail

# The checkout with its environment and the working directory lie on storage that all nodes share.
. "${RLWB:-/shared/rlwb}/.venv/bin/activate"
cpus=$SLURM_CPUS_PER_TASK
port=$((20000 + SLURM_JOB_ID % 20000)) # so that two jobs can share a node
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=$(srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" hostname --ip-address | awk '{print $1}')

start() { # NODE WORDS…: starts Ray on a node and stays with it
  srun --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --overlap --nodelist="$1" \
    ray start "${@:2}" --num-cpus="$cpus" --disable-usage-stats --block >/dev/null &
}

start "${nodes[0]}" --head --node-ip-address="$head" --port="$port" --include-dashboard=false
export RAY_ADDRESS="$head:$port"
until ray health-check --address "$RAY_ADDRESS" 2>/dev/null; do sleep 1; done
for node in "${nodes[@]:1}"; do start "$node" --address="$RAY_ADDRESS"; done

# Slurm ends what was started above together with the job.
srun --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --overlap --nodelist="${nodes[0]}" "$@"
