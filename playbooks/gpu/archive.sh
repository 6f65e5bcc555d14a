#!/usr/bin/env bash
# Packs what a GPU host without a network needs into a folder: archive.sh FOLDER
#
#   bisect_agent-*.whl   the agent of this checkout, with playbooks and kernels
#   packages.tar.xz      sglang and what the agent needs, from wheels, pruned for compute capability 9.0: 58 MB, in some minutes
#   on-host.sh           what is called there
#
# The packages are made anew only where their lists, or this script, have changed. PYTHON names another Python; PIP_* variables
# name another index. The wheels, 540 MB, stay in ~/.cache/bisect-agent/gpu/wheels.
set -euo pipefail

to=${1:?usage: archive.sh FOLDER}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
wheels=$HOME/.cache/bisect-agent/gpu/wheels
mkdir -p "$to" "$wheels"
to=$(cd "$to" && pwd)

rm -f "$to"/*.whl
"${PYTHON:-python3}" -m pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir "$to" "$root"
cp "$here/on-host.sh" "$to"

list=$(cat "$here"/requirements-*.txt "$here/archive.sh" | sha256sum)
if [[ -f $to/packages.tar.xz && -f $to/packages.txt && $(<"$to/packages.txt") == "$list" ]]; then
	ls -l "$to"
	exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
platforms=(any linux_x86_64 manylinux1_x86_64 manylinux2014_x86_64 manylinux_2_{17,24,27,28,31,34,35}_x86_64)
for name in sglang agent; do
	"${PYTHON:-python3}" -m pip download -qq --disable-pip-version-check --no-deps --only-binary=:all: \
		--python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none "${platforms[@]/#/--platform=}" \
		--find-links "$wheels" --dest "$work/wheels-$name" --requirement "$here/requirements-$name.txt"
	cp -n "$work/wheels-$name"/*.whl "$wheels"
	mkdir "$work/$name"
	for wheel in "$work/wheels-$name"/*.whl; do
		unzip -q -o "$wheel" -d "$work/$name"
	done
	for data in "$work/$name"/*.data; do
		for part in purelib platlib; do
			[[ ! -d $data/$part ]] || cp -r "$data/$part/." "$work/$name"
		done
		rm -rf "$data"
	done
done

cd "$work/sglang"
# Attention libraries that the playbooks do not use, and code for other devices, are most of sglang-kernel.
rm -rf sgl_kernel/{flash_ops*,infllm_ops*,sm100} sglang/{multimodal_gen,test} flashinfer/data/cutlass/{test,examples,media} \
	xgrammar/lib/*.a xgrammar/include pycountry/locales jedi/third_party/{typeshed,django-stubs} mistral_common/data
# The tokenizers of a host may be newer than what this version of transformers accepts; it works with them.
sed -i 's/tokenizers>=0.22.0,<=0.23.0/tokenizers>=0.22.0/' transformers/dependency_versions_table.py
cd "$work"
find . -name '*.so*' -type f -size +300k -exec strip --strip-debug {} + 2>/dev/null || true
find . -name '*.pyi' -delete
find . -type d -name tests -prune -exec rm -rf {} +
tar -cf - sglang agent | xz -T1 -6 >"$to/packages.tar.xz"
echo "$list" >"$to/packages.txt"
ls -l "$to"
