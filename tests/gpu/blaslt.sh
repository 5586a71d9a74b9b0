#!/usr/bin/env bash
# blaslt.sh CASE KIND PAGODA NEAR_TIE KERNELS MODEL
#
# deterministic=off on a stand-in device, with and without the stand-in of the vendor's library of
# products: which of them made the products, seen by what happens when it misbehaves.
set -euo pipefail
case=$1 kind=$2 pagoda=$3 near_tie=$4 kernels=$5 model=$6
device="$kind:0{kernels=$kernels;deterministic=off;library_rows=8}"
declare -A libraries=([cuda]="libcublasLt.so.13 libcublasLt.so.12"
                      [hip]="libhipblaslt.so.1 libhipblaslt.so.0")

# The tokens of the CPU, but for near ties.
right() {
    PAGODA_DOUBLE=${1-} timeout 300 "$near_tie" --prompts 1 cpu "$device" 0.02 "$model"
}

plan() {
    timeout 60 "$pagoda" plan "$model" --device "$1"
}

case $case in
used)
    right
    if right blas_wrong=1; then
        echo "the answer is right although the library's products are wrong: it is not used"
        exit 1
    fi
    plan "$device" | grep -qE "gate_up .*_blaslt"
    ;;
deterministic)
    # On by default: the library is not asked, however wrong it is.
    device="$kind:0{kernels=$kernels;library_rows=8}"
    right blas_wrong=1
    ! plan "$device" | grep -q blaslt
    ;;
no_algorithm)
    right blas_none=1,blas_wrong=1
    ;;
fails)
    # What fails once is not asked again for that shape; of this model each has one part.
    right blas_fail=1
    right blas_fail=5
    ;;
absent)
    # Files of those names that are no libraries: this machine may have the real ones.
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    for name in ${libraries[$kind]}; do
        echo "not a library" >"$folder/$name"
    done
    export LD_LIBRARY_PATH=$folder:${LD_LIBRARY_PATH-}
    right blas_wrong=1
    plan "$device" | tee /dev/stderr | grep -q "there is no ${libraries[$kind]%% *}"
    ;;
*)
    echo "blaslt.sh: unknown case $case"
    exit 2
    ;;
esac
