#!/bin/bash
# A Ray cluster inside one Slurm job, and a command of mixtree on it:
#   sbatch --nodes=2 examples/cluster/slurm.sh mixtree fit customers.csv … --workers ray --out model
# The current folder must be shared by all nodes. Ctrl-C, time limits and lost nodes cost one segment: submit again
# with `mixtree resume model`.
#SBATCH --job-name=mixtree
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --output=mixtree-%j.log
set -euo pipefail

port="${RAY_PORT:-6379}"
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head="${nodes[0]}"
address="$(srun --nodes=1 --ntasks=1 -w "$head" hostname -I 2>/dev/null | awk '{print $1}')"
address="${RAY_HEAD_IP:-${address:-127.0.0.1}}"
cpus="${SLURM_CPUS_ON_NODE:-1}"

# Whoever has the token may run programs here: a new one for every job, never on a command line.
umask 077
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1
RAY_AUTH_TOKEN="$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')"
export RAY_AUTH_TOKEN
# Ray keeps sockets there, whose names must be short.
folder="/tmp/ray-$SLURM_JOB_ID"

srun --overlap --nodes=1 --ntasks=1 -w "$head" ray start --head --block --disable-usage-stats \
  --node-ip-address="$address" --port="$port" --num-cpus="$cpus" --include-dashboard=false --temp-dir="$folder" &
for node in "${nodes[@]:1}"; do
  srun --overlap --nodes=1 --ntasks=1 -w "$node" sh -c "until ray start --address=$address:$port --block \
    --disable-usage-stats --num-cpus=$cpus; do sleep 2; done" &
done

export RAY_ADDRESS="$address:$port"
until ray status --address="$RAY_ADDRESS" >/dev/null 2>&1; do
  sleep 1
done
code=0
"$@" || code=$?
kill $(jobs -p) 2>/dev/null || true  # the steps, and Ray with them
wait
rm -rf "$folder"
exit "$code"
