#!/usr/bin/env bash
# races.sh OPS_TEST PLUGINS
#
# Every kernel under oclgrind: no data race, no access outside a memory. The shapes of ops_test have
# several groups and ragged ends.
set -euo pipefail
icd=/usr/lib/oclgrind/liboclgrind-rt-icd.so
if [[ ! -f $icd ]]; then
    echo "skipped: there is no oclgrind"
    exit 77
fi
# oclgrind does not know what the optimiser makes of some calls.
export OCL_ICD_VENDORS=$icd OCLGRIND_DATA_RACES=1 OCLGRIND_BUILD_OPTIONS=-cl-opt-disable
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for op in embed gather_rows rmsnorm add_rmsnorm add act_mul rope kv_write gate_up attn argmax \
          sample gemm; do
    if ! "$1" --plugin-dir "$2" --device ocl:0 --op "$op" --cases 1 --seed 3 >"$log" 2>&1 ||
        grep -qiE 'data race|invalid (read|write)' "$log"; then
        echo "$op:"
        head -n 40 "$log"
        exit 1
    fi
    echo "$op: $(tail -n 1 "$log")"
done
