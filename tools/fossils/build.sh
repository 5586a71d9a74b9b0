#!/usr/bin/env bash
# build.sh [FOLDER]: builds the fossils of tests/abi/fossils again, into FOLDER (default: there).
#
# A fossil is a plugin (or a host) built with the headers of one minor of the interface and kept as
# a binary, so that what it was promised is run on every later host. Each comes from two commits:
# the one whose headers it was built with and the one that holds its source; both are read with
# `git show`, nothing of today's tree goes in. x86-64 Linux, gcc 12, libc only, no paths, no build
# id: the same compiler gives the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=$(realpath -m "${1-tests/abi/fossils}")
cc=${CC-gcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

flags=(-std=c11 -Os -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -g0
    -fno-asynchronous-unwind-tables -fno-ident -ffp-contract=off -march=x86-64
    "-ffile-prefix-map=$work/=")
link=(-s -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-O1)

# headers MINOR COMMIT: the five headers of a minor into $work/MINOR/include.
headers() {
    mkdir -p "$work/$1/include/pagoda"
    local name
    for name in status types plugin backend ops; do
        git show "$2:include/pagoda/$name.h" >"$work/$1/include/pagoda/$name.h"
    done
}

# plugin MINOR NAME COMMIT:PATH: libpgd-NAME.so and its manifest.
plugin() {
    mkdir -p "$out/$1"
    git show "$3" >"$work/$2.c"
    (cd "$work" && "$cc" "${flags[@]}" -I "$1/include" -shared "${link[@]}" -Wl,-z,defs "$2.c" \
        -o "$out/$1/libpgd-$2.so" -lm)
    chmod 644 "$out/$1/libpgd-$2.so"
    cat >"$out/$1/libpgd-$2.json" <<EOF
{
  "schema": 1,
  "kind": "$2",
  "name": "Fossil of interface $1",
  "vendor": "pagoda",
  "version": "0.1.0",
  "role": "backend",
  "abi": {"major": 0, "minor": ${1#0.}, "min_host_minor": 1},
  "library": "libpgd-$2.so",
  "sha256": "$(sha256sum "$out/$1/libpgd-$2.so" | cut -d ' ' -f 1)",
  "license": "Apache-2.0"
}
EOF
}

headers 0.1 51d3d63
plugin 0.1 minimal 51d3d63:tests/abi/minimal_plugin.c
headers 0.2 5b07cb7
plugin 0.2 minimal 51d3d63:tests/abi/minimal_plugin.c
ls -l "$out"/*/
