#!/usr/bin/env bash
# run.sh [--dry-run] [--build DIR] [--device NAME] [--seconds N] OUT
#
# On a machine with a card: builds, tests and measures, and writes OUT/log.md: card, driver, every
# command with its result, and the tables of docs/performance.md. What is not there is skipped by
# name, what no longer fits into the seconds (default 570) is left out by name. --dry-run: the same
# steps with tiny shapes on whatever --device is, for example a stand-in (tests/doubles).
# Ends with 1 if a test failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dry=0 build="" device=cuda:0 seconds=570 out=""
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=1 ;;
    --build) build=$2 && shift ;;
    --device) device=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    -*) echo "run.sh: unknown option $1" >&2 && exit 2 ;;
    *) out=$1 ;;
    esac
    shift
done
if [ -z "$out" ]; then
    echo "usage: run.sh [--dry-run] [--build DIR] [--device NAME] [--seconds N] OUT" >&2
    exit 2
fi
mkdir -p "$out"
log=$out/log.md
end=$(($(date +%s) + seconds))
failed=0

say() { printf '%s\n' "$*" | tee -a "$log"; }
left() { echo $((end - $(date +%s))); }

# step NAME SECONDS COMMAND...: one row of the log; its output is OUT/NAME.txt, or the file `to`.
step() {
    local name=$1 most=$2 rc=0 begin
    shift 2
    if [ "$(left)" -lt 5 ]; then
        say "| $name | left out: no time | \`$*\` |"
        return 1
    fi
    [ "$most" -lt "$(left)" ] || most=$(left)
    begin=$(date +%s)
    timeout "$most" "$@" 2>"$out/$name.txt" >"${to:-/dev/fd/2}" || rc=$?
    case $rc in
    0) say "| $name | passed, $(($(date +%s) - begin)) s | \`$*\` |" ;;
    77) say "| $name | skipped: $(tail -1 "$out/$name.txt") | \`$*\` |" ;;
    124) say "| $name | cut off after $most s | \`$*\` |" && return 1 ;;
    *) say "| $name | FAILED ($rc), see $name.txt | \`$*\` |" && failed=1 && return 1 ;;
    esac
}
missing() { say "| $1 | skipped: $2 | |"; }

: >"$log"
say "# $(date -u +%F), $(git -C "$root" describe --always --dirty 2>/dev/null || echo no git)"
if command -v nvidia-smi >/dev/null; then
    fields=name,driver_version,memory.total
    card=$(nvidia-smi --query-gpu=$fields --format=csv,noheader | head -1)
    say "card, driver, memory: $card"
else
    say "card: no nvidia-smi"
fi
say "compiler: $(nvcc --version 2>/dev/null | grep release || echo no nvcc)"
say ""
say "| step | result | command |"
say "|---|---|---|"

if [ -z "$build" ]; then
    build=$out/build
    step configure 60 cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release || exit 1
    step build 300 ninja -C "$build" || exit 1
fi
bin=$build/bin
export PAGODA_PLUGIN_PATH=${PAGODA_PLUGIN_PATH:-$build/lib/pagoda}
pagoda=$bin/pagoda
golden=$root/tests/golden/models

# ---- right ---------------------------------------------------------------------------------------
plain=${device%%\{*}
step devices 60 "$pagoda" devices --explain
step plan 60 "$pagoda" plan "$root/models/nano" --device "$device"
goldens=("$golden"/*/golden*.json)
if [ $dry = 1 ]; then goldens=("$golden/llama-default/golden.json"); fi
step goldens 120 "$bin/tests/golden_test" "$device" "${goldens[@]}"
if [ -x "$bin/tests/ahead_test" ]; then
    step ahead 60 "$bin/tests/ahead_test" "$device"
else
    missing ahead "built without cmocka"
fi
if [ $dry = 0 ]; then
    step invariance 90 "$bin/tests/invariance_test" "$device" "$golden/llama-default" \
        "$root/models/nano"
    for level in 3 4; do
        step "conform$level" 90 "$bin/pagoda-conform" "$build/lib/pagoda/libpgd-${plain%%:*}.so" \
            --device "$device" --level "$level" --soak 5s --loops 20 --cases 4
    done
else
    step conform1 60 "$bin/pagoda-conform" "$build/lib/pagoda/libpgd-cpu.so" --level 1 --loops 2
fi
for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
        step "$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/tests/ops_test" \
            --plugin-dir "$build/lib/pagoda" --device "$device" --cases 1
    else
        missing "$tool" "there is no compute-sanitizer"
    fi
done

# ---- fast ----------------------------------------------------------------------------------------
small=()
if [ $dry = 1 ]; then small=(--mib 4 --n 64); fi
step limits 30 python3 "$here/limits.py" "${small[@]}" --json "$out/limits.json"

# bench NAME MODEL ARGS...: one case, with --deterministic on and off.
bench() {
    local name=$1 model=$2 mode
    shift 2
    for mode in on off; do
        to=$out/$name-$mode.json step "$name-$mode" 45 "$pagoda" bench latency "$model" \
            --device "$device" --deterministic $mode --weight-cache off --json "$@"
    done
}
# bench_with OPTION NAME MODEL ARGS...: the same with an option that CUDA alone has.
bench_with() {
    local options=${device#*\{} option=$1
    shift
    [[ $device == cuda* ]] || return 0
    [[ $device == *\{* ]] && options=";${options%\}}" || options=
    device="${device%%\{*}{$option$options}" bench "$@"
}
if [ $dry = 1 ]; then
    nano=("$root/models/nano" --input-len 8 --output-len 3 --repeat 1 --warmup 0
          --max-model-len 64)
    bench nano-b1 "${nano[@]}"
    bench_with overlap=on nano-b1-overlap "${nano[@]}"
else
    for shape in llama-3.2-1b llama-3.1-8b; do
        model=synthetic:$shape
        bench $shape-b1 $model --batch-size 1 --input-len 128 --output-len 129 --repeat 1
        bench_with overlap=on $shape-b1-overlap $model --batch-size 1 --input-len 128 \
            --output-len 129 --repeat 1
        bench $shape-b64 $model --batch-size 64 --input-len 16 --context 1024 --output-len 33 \
            --max-num-seqs 64 --repeat 1 --warmup 0
        bench $shape-b256 $model --batch-size 256 --input-len 16 --context 1024 --output-len 17 \
            --max-num-seqs 256 --repeat 1 --warmup 0
        bench $shape-prefill $model --input-len 2048 --output-len 2 --repeat 2
        bench_with wgmma=off $shape-prefill-mma $model --input-len 2048 --output-len 2 --repeat 2
    done
fi
if python3 -c 'import torch' 2>/dev/null; then
    step torch 120 python3 "$here/torch_peer.py" --json "$out/torch.json"
else
    missing torch "PyTorch cannot be imported"
fi
say ""
python3 "$here/table.py" "$out" | tee -a "$log"
exit $failed
