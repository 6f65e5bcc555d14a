#!/usr/bin/env bash
# Runs a command in a memory control group: in-cgroup.sh NAME LIMIT COMMAND...
#
# The group NAME is made in our own one, or in the nearest one above it where we may; both versions of control groups will do.
# It is not removed, for the kernel counts its kills there, but left empty and used again.
# Exit code 125, "cannot be tested", where no such group can be made.
set -euo pipefail

name=$1 limit=$2
shift 2

if own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup) && [[ $own ]]; then
	top=/sys/fs/cgroup/memory bound=memory.limit_in_bytes swap=memory.memsw.limit_in_bytes none=$limit
else
	own=$(sed -n 's/^0:://p' /proc/self/cgroup)
	top=/sys/fs/cgroup bound=memory.max swap=memory.swap.max none=0
fi

enter() {
	{ [[ -d $1 ]] || mkdir "$1"; } && echo "$limit" >"$1/$bound" && echo $$ >"$1/cgroup.procs"
}

place=$top${own%/}
until enter "$place/$name" 2>/dev/null; do
	rmdir "$place/$name" 2>/dev/null || true
	if [[ $place == "$top" ]]; then
		echo "in-cgroup.sh: no control group with a limit of memory can be made here, in $top$own or above" >&2
		exit 125
	fi
	place=${place%/*}
done
# Swapped out is not killed. Not every system counts swap.
{ echo "$none" >"$place/$name/$swap"; } 2>/dev/null || true

exec "$@"
