#!/usr/bin/env bash
# registers.sh NVCC PYTHON SOURCE CHIP...
#
# No kernel for tensor cores spills more than kernels/cuda/spills.txt says; and that more would be
# seen, and a kernel that is missing.
set -euo pipefail
nvcc=$1 python=$2 source=$3
shift 3
if ! "$nvcc" --version | grep -q "release 13.0"; then
    echo "skipped: the list is of nvcc 13.0"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
check() {
    "$python" "$source/tools/gpu/registers.py" --check --log "$1=$2"
}
for chip in "$@"; do
    log=$folder/$chip
    "$nvcc" -arch="$chip" -fmad=false -O3 --cubin -Xptxas -v -I "$source/kernels" -o /dev/null \
        "$source/kernels/cuda/device.cu" 2>"$log"
    check "$chip" "$log"
done
sed '0,/ 0 bytes spill stores/s// 4 bytes spill stores/' "$log" >"$folder/spills"
grep -v "entry function 'pgd_cuda_pack_x'" "$log" >"$folder/without"
for wrong in spills without; do
    cmp -s "$log" "$folder/$wrong" && exit 1
    if check "$chip" "$folder/$wrong" >"$folder/out"; then
        echo "it is not seen: $wrong"
        exit 1
    fi
    tail -n 1 "$folder/out"
done
