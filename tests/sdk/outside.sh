#!/usr/bin/env bash
# outside.sh BUILD CC: installs the SDK alone, copies plugins to a folder outside the tree, builds
# them there with nothing but the SDK, and lets the program run the default model on them:
#
#   template   as it is: loads, drives no device
#   minimal    memory, queue and copy only (level 1): the host computes, with --allow-slow
#   naive      complete (level 3): no slow place
build=$1
cc=$2
. "$(dirname "${BASH_SOURCE[0]}")/../install/common.sh"

cmake --install "$build" --component pagoda-sdk --prefix "$work/first" >"$work/log" ||
    fail "$(cat "$work/log")"
mv "$work/first" "$work/the sdk"
sdk="$work/the sdk"

headers=$(cd "$sdk/include/pagoda" && echo *)
[[ $headers == "backend.h ops.h plugin.h status.h types.h" ]] || fail "headers: $headers"
if [[ -e $sdk/lib/libpagoda.so || -n $(find "$sdk" -path '*runtime*' -print -quit) ]]; then
    fail "the SDK holds parts of the runtime"
fi
grep -rqF "$source_dir" "$sdk" && fail "the SDK names the source folder"
(($(wc -l <"$sdk/share/pagoda-sdk/template/template.c") < 500)) ||
    fail "the template has 500 lines or more"

# A vendor's folder: what the SDK ships, and a plugin of fourteen functions.
cp -r "$sdk/share/pagoda-sdk/template" "$sdk/share/pagoda-sdk/naive" "$work"
mkdir "$work/minimal"
cp "$source_dir/tests/abi/minimal_plugin.c" "$work/minimal"
cat >"$work/minimal/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.22)
project(minimal LANGUAGES C)
find_package(pagoda-sdk 0.2 REQUIRED)
pagoda_sdk_plugin(minimal minimal_plugin.c)
EOF
echo '{"schema": 1, "kind": "minimal", "name": "Minimal", "vendor": "pagoda", "version": "0.1.0",
    "role": "backend"}' >"$work/minimal/libpgd-minimal.json"

for kind in template minimal naive; do
    bare "PATH=$PATH" cmake -S "$work/$kind" -B "$work/$kind/build" "-DCMAKE_PREFIX_PATH=$sdk" \
        "-DCMAKE_C_COMPILER=$cc" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$work/log" 2>&1 &&
        bare "PATH=$PATH" cmake --build "$work/$kind/build" >>"$work/log" 2>&1 ||
        fail "$kind: $(cat "$work/log")"
    library=$work/$kind/build/libpgd-$kind.so
    needs=$(readelf -d "$library" | grep NEEDED | grep -vE '\[lib(c|m)\.so\.6\]' || true)
    [[ -z $needs ]] || fail "$kind needs $needs"
    symbols=$(nm -D --defined-only "$library" | awk '{print $3}')
    [[ $symbols == pgd_plugin_v0 ]] || fail "$kind exports $symbols"
done
cmake --install "$work/naive/build" --prefix "$work/prefix" >"$work/log" ||
    fail "$(cat "$work/log")"
[[ -f $work/prefix/lib/pagoda/libpgd-naive.json ]] || fail "the plugin's manifest is not installed"

pagoda=$build/bin/pagoda
question="What is the capital of France?"

# ask KIND FLAG...: the answer of the default model on a plugin.
ask() {
    local kind=$1
    shift
    bare "$pagoda" run "$source_dir/models/nano" --plugin "$work/$kind/build/libpgd-$kind.so" \
        --device "$kind" --chat -n 8 -p "$question" "$@" 2>"$work/stderr"
}

explained=$(bare "$pagoda" devices --explain --plugin "$work/template/build/libpgd-template.so")
[[ $explained == *"there to be copied and drives no device"* ]] || fail "template: $explained"

if ask minimal >"$work/stdout"; then
    fail "minimal runs without --allow-slow"
fi
grep -q "would run .* operations of this model slowly.*--allow-slow permits it" "$work/stderr" ||
    fail "minimal: $(cat "$work/stderr")"
[[ $(ask minimal --allow-slow) == *Paris* ]] || fail "minimal: $(cat "$work/stderr")"
[[ $(ask naive) == *Paris* ]] || fail "naive: $(cat "$work/stderr")"

# The tool that comes with the SDK, without the program: levels, and whole models whose arithmetic
# is the host's.
conform="$sdk/bin/pagoda-conform"
[[ -x $conform ]] || fail "the SDK has no pagoda-conform"
# judge KIND OPTION...
judge() {
    bare "$conform" "$work/$1/build/libpgd-$1.so" "${@:2}" >"$work/log" 2>&1 ||
        fail "$1 ${*:2}: $(cat "$work/log")"
}
judge minimal --level 1 --loops 100
grep -q "level 1 reached" "$work/log" || fail "minimal: $(cat "$work/log")"
judge minimal --level 2 --only golden.llama-llama3
judge naive --level 3 --soak 2s --cases 2
grep -q "level 3 reached" "$work/log" || fail "naive: $(cat "$work/log")"

# The first steps of docs/vendor.md, as they are written there.
ln -s "$sdk" "$work/sdk"
ln -s "$sdk/share/doc/pagoda-sdk" "$work/doc"
for page in vendor abi ci; do
    [[ -s $work/doc/$page.md ]] || fail "the SDK has no $page.md"
done
sed -n '/^## From copy to tokens/,/^| step/p' "$work/doc/vendor.md" | sed -n '/^```$/,/^```$/p' |
    sed -e '/^```$/d' -e "s|DIR|$work/sdk|g" >"$work/steps"
(($(wc -l <"$work/steps") >= 5)) || fail "docs/vendor.md has no first steps: $(cat "$work/steps")"
mkdir "$work/empty"
sed -i 's/--skip-missing$/--skip-missing || test $? -eq 77/' "$work/steps"
(cd "$work/empty" && env -i "PATH=$build/bin:$PATH" "CC=$cc" bash -eu "$work/steps") \
    >"$work/log" 2>&1 || fail "the first steps: $(cat "$work/log")"
grep -q "finds no device on this machine" "$work/log" &&
    grep -q "there to be copied and drives no device" "$work/log" ||
    fail "the first steps: $(cat "$work/log")"
