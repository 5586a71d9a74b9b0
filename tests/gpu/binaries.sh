#!/usr/bin/env bash
# binaries.sh OPS_TEST PLUGINS CACHE
#
# Kernels are kept in the folder that the option names and taken from there; a damaged file is made
# anew.
set -euo pipefail
ops=$1 plugins=$2 cache=$3
run() {
    "$ops" --plugin-dir "$plugins" --device "ocl:0{cache=$cache}" --op add --cases 1 >/dev/null
}
rm -rf "$cache"
mkdir -p "$cache"
run
file=$(find "$cache" -name 'ocl-*.bin')
[[ -s $file ]] || { echo "no binary in $cache"; exit 1; }
stamp=$(stat -c %Y.%i "$file")
run
[[ $(stat -c %Y.%i "$file") == "$stamp" ]] || { echo "the binary was written twice"; exit 1; }
echo damaged >"$file"
run
[[ $(stat -c %s "$file") -gt 1000 ]] || { echo "a damaged binary stays"; exit 1; }
