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

# plugin MINOR NAME COMMIT FILE...: libpgd-NAME.so and its manifest from files of a commit.
plugin() {
    local minor=$1 name=$2 commit=$3 file sources=()
    shift 3
    mkdir -p "$out/$minor" "$work/$name"
    for file in "$@"; do
        git show "$commit:$file" >"$work/$name/$(basename "$file")"
        [[ $file != *.c ]] || sources+=("$name/$(basename "$file")")
    done
    (cd "$work" && "$cc" "${flags[@]}" -I "$minor/include" -shared "${link[@]}" -Wl,-z,defs \
        "${sources[@]}" -o "$out/$minor/libpgd-$name.so" -lm)
    chmod 644 "$out/$minor/libpgd-$name.so"
    cat >"$out/$minor/libpgd-$name.json" <<EOF
{
  "schema": 1,
  "kind": "$name",
  "name": "Fossil of interface $minor",
  "vendor": "pagoda",
  "version": "0.1.0",
  "role": "backend",
  "abi": {"major": 0, "minor": ${minor#0.}, "min_host_minor": 1},
  "library": "libpgd-$name.so",
  "sha256": "$(sha256sum "$out/$minor/libpgd-$name.so" | cut -d ' ' -f 1)",
  "license": "Apache-2.0"
}
EOF
}

# host MINOR COMMIT: the program that runs a plugin on the runtime/dev of that commit.
host() {
    local tree=$work/host-$1 sources=() file
    mkdir -p "$tree"
    git archive "$2" include runtime/base runtime/os runtime/dev kernels/ref tests/abi |
        tar x -C "$tree"
    cp -r tools/fossils/host.c tools/fossils/shim "$tree"
    for file in "$tree"/{runtime/{base,os,dev},kernels/ref}/*.c; do
        [[ $file == *_test.c ]] || sources+=("${file#"$tree"/}")
    done
    # What the linker throws away (JSON, hashes) may miss its library.
    (cd "$tree" && "$cc" "${flags[@]}" "-ffile-prefix-map=$tree/=" \
        '-DFALLBACK_TEST="runtime/dev/fallback_test.c"' -I shim -I . -I include -I runtime \
        -I kernels host.c "${sources[@]}" "${link[@]}" -pthread -ldl -lm -o "$out/$1/host")
}

# MINOR, the commit of its headers. A new minor: one line here, when layout.py --keep has run.
minors=("0.1 51d3d63" "0.2 5b07cb7")
naive=(plugins/naive/{naive,handles,ops}.c plugins/naive/naive.h)
for row in "${minors[@]}"; do
    read -r minor commit <<<"$row"
    headers "$minor" "$commit"
    plugin "$minor" minimal 51d3d63 tests/abi/minimal_plugin.c
    plugin "$minor" naive 8d74aa1 "${naive[@]}"
done
host 0.1 51d3d63
host 0.2 d3cc1ba
ls -l "$out"/*/
