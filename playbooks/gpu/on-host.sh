#!/usr/bin/env bash
# Runs playbooks on the GPU host that this is called on, side by side: on-host.sh ARCHIVES RESULTS SECONDS PLAYBOOK...
#
#   ARCHIVES   the folder that archive.sh makes
#   RESULTS    the folder for runs.tar.gz: each run folder, its export, and what the agent said
#   SECONDS    the time after which nothing runs any more; a run that it cuts short has a partial verdict
#   PLAYBOOK   a name in playbooks/gpu
#
# The host needs an NVIDIA GPU, Python 3.12 with torch 2.11, triton 3.6 and tokenizers, nvcc and ninja; no network. All that is
# installed goes to ~/.cache/bisect-agent/gpu. Exit code: the highest of the agents'.
set -euo pipefail

archives=$(cd "$1" && pwd)
mkdir -p "$2"
results=$(cd "$2" && pwd)
until=$(date -d "+$3 seconds" +%Y-%m-%dT%H:%M:%S)
shift 3

home=$HOME/.cache/bisect-agent/gpu
mkdir -p "$home"
if ! cmp -s "$archives/packages.txt" "$home/packages.txt"; then
	rm -rf "$home/packages"
	mkdir "$home/packages"
	tar -C "$home/packages" -xJf "$archives/packages.tar.xz"
	# An environment of its own, in which what came along goes before what the host has.
	python3 -m venv --without-pip --clear "$home/sglang"
	{
		echo "$home/packages/sglang"
		python3 -c 'import site; print(*site.getsitepackages(), sep="\n")'
	} >"$(echo "$home"/sglang/lib/python3.*/site-packages)/gpu.pth"
	cp "$archives/packages.txt" "$home"
fi
rm -rf "$home/agent"
python3 -m zipfile -e "$archives"/bisect_agent-*.whl "$home/agent"
playbooks=$home/agent/bisect_agent/playbooks
"$home/sglang/bin/python" "$playbooks/sglang-cpu/model.py" "$home/models/mla" mla

# Removed only once it is packed: who interrupts this finds the run folders there, and the agents end by their hour.
work=$(mktemp -d)
export PYTHONPATH=$home/agent:$home/packages/agent
agent=(python3 -P -m bisect_agent) # -P: not the checkout that this may be called in

one() {
	local name=$1 code=0 run
	"${agent[@]}" run "$playbooks/gpu/$name.yaml" --runs "$work/$name" --until "$until" \
		>"$work/$name.txt" 2>&1 </dev/null || code=$?
	for run in "$work/$name"/*/; do
		[[ -d $run ]] || continue
		"${agent[@]}" verify "$run" || true
		"${agent[@]}" stop "$run" || true
		"${agent[@]}" export --redact "$run" --to "$work/$name.tar.gz" || true
	done >>"$work/$name.txt" 2>&1 </dev/null
	echo "$name: exit code $code"
	return "$code"
}

began=$SECONDS
pids=()
for name in "$@"; do
	one "$name" &
	pids+=($!)
done
worst=0
for pid in "${pids[@]}"; do
	code=0
	wait "$pid" || code=$?
	((code <= worst)) || worst=$code
done
echo "$# playbooks in $((SECONDS - began)) s"
tar -C "$work" -czf "$results/runs.tar.gz" .
rm -rf "$work"
exit "$worst"
