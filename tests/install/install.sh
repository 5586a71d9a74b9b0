#!/usr/bin/env bash
# install.sh BUILD CC: installs, moves the tree, runs the program from there, and builds a program
# on the installed header and library.
build=$1
cc=$2
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cmake --install "$build" --prefix "$work/first" --strip >"$work/log" || fail "$(cat "$work/log")"
mkdir "$work/a folder"
mv "$work/first" "$work/a folder/pagoda"
prefix="$work/a folder/pagoda"

for file in bin/pagoda lib/libpagoda.so lib/pagoda/libpgd-cpu.so lib/pagoda/libpgd-cpu.json \
            include/pagoda/pagoda.h include/pagoda/plugin.h share/doc/pagoda/LICENSE \
            share/pagoda/models/nano/model.safetensors; do
    [[ -f $prefix/$file ]] || fail "$file is not installed"
done
[[ ! -e $prefix/lib/pagoda/libpgd-template.so ]] || fail "the template plugin is installed"
no_trace "$prefix"

# The library and the plugin for processors stay small: 3 MB stripped, which they are here.
size=$(cat "$prefix/lib/libpagoda.so" "$prefix/lib/pagoda/libpgd-cpu.so" | wc -c)
echo "libpagoda.so and libpgd-cpu.so: $size bytes, 3000000 allowed"
((size < 3000000)) || fail "libpagoda.so and libpgd-cpu.so have $size bytes"
runs "$prefix"

cat >"$work/embed.c" <<'C'
#include <pagoda/pagoda.h>
int main(void) {
    return pgd_engine_destroy == 0;
}
C
"$cc" -std=c11 "$work/embed.c" -o "$work/embed" -I"$prefix/include" -L"$prefix/lib" -lpagoda \
    -Wl,-rpath,"$prefix/lib"
bare "$work/embed" || fail "a program on the installed library does not run"
