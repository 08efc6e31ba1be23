#!/usr/bin/env bash
# Stops what tests/slurm/start.sh FOLDER started there, jobs included.
set -uo pipefail
folder=${1:?usage: tests/slurm/stop.sh FOLDER}
export SLURM_CONF=$folder/slurm.conf
[ -f "$SLURM_CONF" ] && timeout 10 scancel --user="$(id -un)" --full 2> /dev/null
for daemon in slurmd slurmctld munged; do
    [ -f "$folder/$daemon.pid" ] && kill "$(cat "$folder/$daemon.pid")" 2> /dev/null
    rm -f "$folder/$daemon.pid"
done
exit 0
