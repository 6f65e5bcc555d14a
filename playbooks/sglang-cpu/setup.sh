#!/usr/bin/env bash
# Sets up a server's own environment, beside the agent's: setup.sh [sglang|vllm]
#
# Everything goes to ~/.cache/bisect-agent/sglang-cpu, or to the folder that SGLANG_CPU_HOME names: on another disk, say, or
# where other users can read it. There, a link of that first name leads the playbooks to it.
# It does nothing where the environment is there and whole. PYTHON names another Python, PIP_* variables another index.
set -euo pipefail

name=${1:-sglang}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/requirements-$name.txt
home=${SGLANG_CPU_HOME:-$HOME/.cache/bisect-agent/sglang-cpu}
environment=$home/$name

if [[ ! -f $requirements ]]; then
	echo "setup.sh: there is no environment \`$name\`; try: setup.sh sglang" >&2
	exit 2
fi
mkdir -p "$home"

# Two at once would write to the same files.
exec 9>"$home/lock"
flock 9

# Written last, so it tells of a whole installation of this very list.
whole=$environment/installed.txt
if ! cmp -s "$requirements" "$whole"; then
	echo "setup.sh: installing $name into $environment; this takes a minute or two, and some GB" >&2
	"${PYTHON:-python3}" -m venv --clear "$environment"
	"$environment/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --requirement "$requirements"
	if ! grep -q '^cuda: .* = None' "$environment"/lib/python*/site-packages/torch/version.py; then
		echo "setup.sh: this torch is a build for CUDA" >&2
		echo "  try: setup.sh $name, with PIP_EXTRA_INDEX_URL set to where torch publishes the builds for the CPU" >&2
		exit 1
	fi
	cp "$requirements" "$whole"
fi
"$environment/bin/python" "$here/model.py" "$home/models/tiny"
echo "setup.sh: $name is ready in $environment ($(du -sh "$environment" | cut -f1))" >&2
