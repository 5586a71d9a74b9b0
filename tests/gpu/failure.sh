#!/usr/bin/env bash
# failure.sh CASE KIND PAGODA KERNELS [STUBS]
#
# Something is wrong with the driver or the device: the program ends by itself, not with 0, and says
# what it is. The stand-in drivers are told to misbehave by PAGODA_DOUBLE.
set -euo pipefail
case=$1 kind=$2 pagoda=$3 kernels=$4 stubs=${5-}
options="kernels=$kernels"
declare -A library=([cuda]=libcuda.so.1 [hip]=libamdhip64.so.6)
declare -A newest=([cuda]=libcuda.so.1 [hip]=libamdhip64.so.7)
declare -A driver=([cuda]="NVIDIA driver" [hip]="ROCm runtime")

# run SENTENCE: a run that fails with it.
run() {
    local code=0 text
    text=$(timeout 60 "$pagoda" run nano --device "$kind:0{$options}" --temperature 0 -n 40 \
        --ignore-eos -p "Once upon a time" 2>&1) || code=$?
    echo "$text (status $code)"
    if ((code == 0 || code >= 124)); then
        echo "$case: the run ends with $code"
        exit 1
    fi
    grep -qE "$1" <<<"$text" || { echo "$case: no sentence like: $1"; exit 1; }
}

# explained SENTENCE: the list of devices says why there is none.
explained() {
    local text
    text=$(timeout 60 "$pagoda" devices --explain 2>&1)
    grep -qE "$1" <<<"$text" || { echo "$text"; echo "devices --explain: no $1"; exit 1; }
}

case $case in
no_library)
    # Known from the manifest; and a file of that name that is no library.
    unset LD_LIBRARY_PATH
    run "driver not installed: ${newest[$kind]} is not found"
    explained "driver not installed: ${newest[$kind]} is not found"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    echo "not a library" >"$folder/${library[$kind]}"
    export LD_LIBRARY_PATH=$folder
    run "$kind: the ${driver[$kind]} is not installed: there is no lib"
    explained "$kind: the ${driver[$kind]} is not installed"
    ;;
no_device)
    export PAGODA_DOUBLE="devices=0"
    run "$kind:? ?(there is no device|device 0 of 0)"
    explained "$kind: there is no device"
    ;;
stub)
    [[ -f $stubs/libcuda.so ]] || { echo "skipped: there is no toolkit with a stub"; exit 77; }
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    ln -s "$(readlink -f "$stubs/libcuda.so")" "$folder/libcuda.so.1"
    export LD_LIBRARY_PATH=$folder
    run "cuda: the library is the toolkit's stub"
    explained "cuda: the library is the toolkit's stub"
    ;;
old_driver)
    export PAGODA_DOUBLE="driver=12020"
    run "$kind: the ${driver[$kind]} \(version 12020\) does not take the kernels .*too old"
    ;;
small_memory)
    export PAGODA_DOUBLE="memory=8"
    run "memory|bytes"
    ;;
out_of_memory)
    # One of the first, one of the model's, one of the cache's.
    for n in 1 3 6; do
        export PAGODA_DOUBLE="oom=$n"
        run "$kind: .*: out of memory"
    done
    ;;
no_memory_in_a_step)
    # The step is computed again: the answer is that of a device with memory.
    ask=(run nano --device "$kind:0{$options}" -p "Once upon a time" --temperature 0 -n 8
         --ignore-eos)
    right=$("$pagoda" "${ask[@]}" 2>/dev/null)
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    got=$(PAGODA_DOUBLE="launch_oom=40" timeout 60 "$pagoda" "${ask[@]}" 2>"$log")
    cat "$log"
    grep -qE "out of memory.*computed again" "$log" && [[ -n $got && $got == "$right" ]]
    ;;
lost)
    # While weights are packed, in the first steps, in the middle of the answer.
    for n in 1 90 700; do
        export PAGODA_DOUBLE="lose=$n"
        run "$kind: .*: the device is lost"
    done
    ;;
hang)
    export PAGODA_DOUBLE="hang=1"
    options="$options;start_seconds=1"
    run "$kind: the driver gave no answer in 1 s"
    ;;
chip)
    options="kernels="
    export PAGODA_DOUBLE="chip=906"
    if [[ $kind == hip ]]; then
        run "hip: (no kernels for the chip gfx906:.*; there are: gfx90a|this plugin was built)"
    else # the driver itself chooses in a fat binary
        export PAGODA_DOUBLE="chip=70,driver=12000"
        run "cuda: (the NVIDIA driver .* does not take the kernels for sm_70|this plugin was built)"
    fi
    ;;
missing_wait)
    # The host's waits for the device do nothing: the answer must come out wrong, or not at all.
    ask=(run nano -p "Once upon a time" --temperature 0 -n 8 --ignore-eos)
    right=$("$pagoda" "${ask[@]}" --device "$kind:0{$options}" 2>/dev/null)
    export PAGODA_DOUBLE="no_wait=1,pauses=1000,pause_us=2000"
    wrong=$(timeout 60 "$pagoda" "${ask[@]}" --device "$kind:0{$options}" 2>/dev/null) || wrong=
    if [[ -z $right || $right == "$wrong" ]]; then
        echo "a driver that does not wait gives the right answer: $right"
        exit 1
    fi
    ;;
*)
    echo "failure.sh: unknown case $case"
    exit 2
    ;;
esac
