#!/usr/bin/env bash
# races.sh OPS_TEST PLUGINS [OP:SEED...]
#
# Kernels under oclgrind: no data race, no access outside a memory, over shapes of ops_test. An
# interpreter is slow: seeds are of small cases, and attn and kv_write, which take minutes, are left
# to a run by hand (races.sh OPS_TEST PLUGINS attn:1 kv_write:1).
set -euo pipefail
ops=$1 plugins=$2
shift 2
icd=/usr/lib/oclgrind/liboclgrind-rt-icd.so
if [[ ! -f $icd ]]; then
    echo "skipped: there is no oclgrind"
    exit 77
fi
cases=("$@")
((${#cases[@]})) || cases=(embed:3 gather_rows:3 rmsnorm:3 add_rmsnorm:3 add:3 act_mul:3 rope:3
                           gate_up:1 argmax:3 sample:3 head_sample:1)
# oclgrind does not know what the optimiser makes of some calls.
export OCL_ICD_VENDORS=$icd OCLGRIND_DATA_RACES=1 OCLGRIND_BUILD_OPTIONS=-cl-opt-disable
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for case in "${cases[@]}"; do
    if ! "$ops" --plugin-dir "$plugins" --device ocl:0 --op "${case%:*}" --cases 1 \
        --seed "${case#*:}" >"$log" 2>&1 || grep -qiE 'data race|invalid (read|write)' "$log"; then
        echo "$case:"
        head -n 40 "$log"
        exit 1
    fi
    echo "$case: $(tail -n 1 "$log")"
done
