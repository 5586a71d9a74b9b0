# What both tests of an installed tree ask of it. Sourced, with $work the folder to work in.
set -euo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$*" >&2
    exit 1
}

# bare COMMAND...: from /, without environment.
bare() { (cd / && env -i "$@"); }

# runs PREFIX: the program in PREFIX lists the CPU and answers with the default model.
runs() {
    local devices answer
    devices=$(bare "$1/bin/pagoda" devices --json)
    python3 - "$devices" <<'PY' || fail "devices --json names no cpu: $devices"
import json, sys
sys.exit('"cpu' not in json.dumps(json.loads(sys.argv[1])))
PY
    answer=$(bare "$1/bin/pagoda" run --device cpu --chat -n 16 \
        -p "What is the capital of France?" 2>"$work/stderr") ||
        fail "run failed: $(cat "$work/stderr")"
    [[ $answer == *Paris* ]] || fail "the answer has no Paris: $answer"
}

# no_trace PREFIX: nothing in the program, the library and the plugins leads back to a build.
no_trace() {
    local file
    for file in "$1"/bin/pagoda "$1"/lib/libpagoda.so "$1"/lib/pagoda/*.so; do
        if readelf -d "$file" | grep -E 'R(UN)?PATH' | grep -v '\[\$ORIGIN'; then
            fail "$file: its RPATH is not relative"
        fi
        if grep -qF -e "$source_dir/" -e "$build/" "$file"; then
            fail "$file: holds the path of the source or build folder"
        fi
    done
}
