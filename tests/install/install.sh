#!/usr/bin/env bash
# install.sh BUILD CC: installs, moves the tree, runs the program from there, and builds the
# examples on the installed library, by find_package and by pkg-config.
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

# From the moved tree, with an environment that knows nothing of the build.
examples=$source_dir/examples
cmake -S "$examples" -B "$work/examples" "-DCMAKE_PREFIX_PATH=$prefix" "-DCMAKE_C_COMPILER=$cc" \
    >"$work/log" 2>&1 && cmake --build "$work/examples" >>"$work/log" 2>&1 ||
    fail "$(cat "$work/log")"
for name in batch streaming async; do
    bare "$(command -v python3)" "$examples/examples_test.py" $name \
        "$work/examples/bin/examples/$name" nano cpu || fail "$name, by find_package"
    flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs pagoda) ||
        fail "pkg-config"
    eval "$cc" -std=c11 '"$examples/$name.c"' -o '"$work/$name"' "$flags" \
        '"-Wl,-rpath,$prefix/lib"' || fail "$name does not compile with: $flags"
    bare "$(command -v python3)" "$examples/examples_test.py" $name "$work/$name" nano cpu ||
        fail "$name, by pkg-config"
done
