#!/usr/bin/env bash
# races.sh OPS_TEST PLUGINS KERNELS [LAYER [OP:SEED...]]
#
# Every kernel under oclgrind: no data race, no access outside a memory. An interpreter is slow, so
# the shapes are small (ops_test --small): two groups or more, the last with less to do than the
# others. LAYER (launches.c; - for none) writes the launches down, and each kernel of KERNELS
# (kernels/portable/list.inc) has to be among them with two groups.
set -euo pipefail
ops=$1 plugins=$2 kernels=$3 layer=${4:--}
shift $(($# < 4 ? $# : 4))
icd=/usr/lib/oclgrind/liboclgrind-rt-icd.so
if [[ ! -f $icd ]]; then
    echo "skipped: there is no oclgrind"
    exit 77
fi
log=$(mktemp) launches=$(mktemp)
trap 'rm -f "$log" "$launches"' EXIT
cases=("$@")
((${#cases[@]})) ||
    cases=(embed:1 gather_rows:1 add_rmsnorm:1 add:2 act_mul:3 rope:1 argmax:3 kv_write:1
           qkv_rope_write:1 attn:2 gate_up:1 gemm:1 gemm:2 gemm:7 head_sample:6 head_sample:8
           quant_embed:1 quant_gate_up:1 quant_gemm:2 quant_gemm:6 quant_gemm:12 quant_gemm:15
           quant_gemm:21 quant_gemm:26)
if [[ $layer != - ]]; then
    export OPENCL_LAYERS=$layer PAGODA_LAUNCHES=$launches
fi
# oclgrind does not know what the optimiser makes of some calls.
export OCL_ICD_VENDORS=$icd OCLGRIND_DATA_RACES=1 OCLGRIND_BUILD_OPTIONS=-cl-opt-disable
for case in "${cases[@]}"; do
    if ! "$ops" --plugin-dir "$plugins" --device ocl:0 --op "${case%:*}" --cases 1 --small \
        --seed "${case#*:}" >"$log" 2>&1 || grep -qiE 'data race|invalid (read|write)' "$log"; then
        echo "$case:"
        head -n 40 "$log"
        exit 1
    fi
    echo "$case: $(tail -n 1 "$log")"
done
(($# == 0)) || exit 0
if [[ $layer == - ]]; then
    echo "which kernels ran is not known: there is no layer"
    exit 0
fi
missing=0
for kernel in $(sed -n 's/^    X(\([a-z0-9_]*\),.*/\1/p' "$kernels"); do
    if ! awk -v name="pgd_$kernel" '$1 == name && $2 * $3 * $4 > 1 { found = 1 }
                                    END { exit !found }' "$launches"; then
        echo "pgd_$kernel never ran with two groups"
        missing=1
    fi
done
exit $missing
