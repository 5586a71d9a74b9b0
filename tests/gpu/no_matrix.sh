#!/usr/bin/env bash
# no_matrix.sh PAGODA MODEL
#
# A device whose driver does not build the kernels for its matrix unit: the portable ones serve, and
# the plan says why; so it does where they are off.
set -euo pipefail

# expect PAGODA MODEL DEVICE SENTENCE
expect() {
    local said
    said=$("$1" plan "$2" --device "$3" --json)
    grep -q "gemm_add__portable" <<<"$said" || { echo "$3: $said"; exit 1; }
    grep -q "$4" <<<"$said" || { echo "$3: not '$4': $said"; exit 1; }
}

expect "$1" "$2" ze:0 \
    "the driver cannot build the matrix kernels (0x70000004) a function is undefined"
expect "$1" "$2" "ze:0{tuned=off}" "tuned kernels are off (option tuned)"
