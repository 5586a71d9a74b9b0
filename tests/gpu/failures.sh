#!/usr/bin/env bash
# failures.sh PAGODA KIND NOTHING
#
# What goes wrong on a device (KIND: ze, ocl) ends with a sentence and a status, or is made good: no
# crash, no hang, no run on another device. PAGODA_DOUBLE makes the driver fail; NOTHING=value is
# the environment with which the loader finds no driver.
set -euo pipefail
pagoda=$1 kind=$2 nothing=$3
out=$(mktemp)
trap 'rm -f "$out"' EXIT

fail() {
    echo "$1:"
    cat "$out"
    exit 1
}

# run NAME CODE SENTENCE ENVIRONMENT...: the answer to a prompt ends with the code and the sentence.
run() {
    local name=$1 wanted=$2 sentence=$3 code=0
    shift 3
    env "$@" timeout 100 "$pagoda" run nano --device "${device:-$kind:0}" -p "The capital" \
        --max-tokens 6 --temperature 0 >"$out" 2>&1 || code=$?
    [[ $code == "$wanted" ]] || fail "$name ends with $code, not $wanted"
    grep -qE "$sentence" "$out" || fail "$name: no sentence like '$sentence'"
    echo "$name: $(grep -E "$sentence" "$out" | head -n 1)"
}

# listed NAME SENTENCE ENVIRONMENT...: `pagoda devices` goes on without the device and says why.
listed() {
    local name=$1 sentence=$2
    shift 2
    env "$@" timeout 60 "$pagoda" devices --explain >"$out" 2>&1 || fail "$name: devices fails"
    grep -q '^cpu:0 ' "$out" || fail "$name: cpu:0 is gone"
    grep -qE "$sentence" "$out" || fail "$name: no sentence like '$sentence'"
    echo "$name: $(grep -E "$sentence" "$out" | head -n 1)"
}

run "no failure" 0 'length' PAGODA_DOUBLE=
listed "no driver" "$kind: (the loader finds no driver|there is no device)" "$nothing"
run "no driver, a run" 2 "$kind" "$nothing"
listed "no device" "$kind: there is no device" PAGODA_DOUBLE=devices=0
run "no device, a run" 2 "plugin '$kind' has no device" PAGODA_DOUBLE=devices=0
run "no memory at the first" 2 'no memory' PAGODA_DOUBLE=oom=1
run "no memory for a weight" 2 'no memory.*while preparing the weight' PAGODA_DOUBLE=oom=6
run "lost at a weight" 1 'the device is (lost|not available)' PAGODA_DOUBLE=lose=1
run "lost in the middle" 1 "device $kind:0 is lost" PAGODA_DOUBLE=lose=300
device="$kind:0{start_seconds=1}" run "no answer" 2 "$kind: the driver gave no answer in 1 s" \
    PAGODA_DOUBLE=hang=1
run "no memory in a step" 0 'memory.*computed again' PAGODA_DOUBLE=launch_oom=120
# A driver that is too old says no to the kernels.
run "a driver that cannot build" 2 'cannot build the kernels' PAGODA_DOUBLE=driver=1
declare -A library=([ze]=libze_loader.so.1 [ocl]=libOpenCL.so.1)
folder=$(mktemp -d)
echo 'not a library' >"$folder/${library[$kind]}"
listed "no loader" "loader ${library[$kind]} is not installed" LD_LIBRARY_PATH="$folder"
rm -r "$folder"
