#!/usr/bin/env bash
# A SLURM of one node on 127.0.0.1, for tests: tests/slurm/start.sh FOLDER   (as root, on Debian or Ubuntu)
# Installs slurm-wlm and munge where they are missing, starts munged, slurmctld and slurmd, and waits until the node is
# idle. Then:  SLURM_CONF=FOLDER/slurm.conf sinfo      To stop it:  tests/slurm/stop.sh FOLDER
set -euo pipefail
folder=${1:?usage: tests/slurm/start.sh FOLDER}
mkdir -p "$folder/state" "$folder/spool"
folder=$(cd "$folder" && pwd)
export SLURM_CONF=$folder/slurm.conf

if ! command -v slurmctld slurmd munged > /dev/null; then
    # nothing may start by itself while the packages are installed
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge > "$folder/apt.log" 2>&1 \
        || { cat "$folder/apt.log" >&2; exit 1; }
fi

if ! munge -n > /dev/null 2>&1; then
    [ -s /etc/munge/munge.key ] || { mungekey --create --force; chown munge: /etc/munge/munge.key; }
    install -d -o munge -g munge -m 755 /run/munge
    runuser -u munge -- munged --pid-file="/run/munge/munged-test.pid"
    cp /run/munge/munged-test.pid "$folder/munged.pid"
fi

name=$(hostname -s)
memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
cat > "$SLURM_CONF" << EOF
ClusterName=hyperes
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=sched_min_interval=500000
NodeName=$name NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=$name Default=YES MaxTime=INFINITE State=UP
EOF
slurmctld
slurmd
for _ in $(seq 60); do
    [ "$(sinfo --noheader --format=%T 2> /dev/null)" = idle ] && exit 0
    sleep 1
done
echo "SLURM does not get ready:" >&2
tail -n 20 "$folder"/slurm*.log >&2
exit 1
