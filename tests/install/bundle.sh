#!/usr/bin/env bash
# bundle.sh BUILD: makes the bundle, moves it, and sees that it needs glibc only from outside.
build=$1
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cmake "-DBUILD=$build" "-DOUT=$work" -DNAME=pagoda-test -P "$source_dir/cmake/bundle.cmake" \
    >"$work/log" 2>&1 || fail "$(cat "$work/log")"
mkdir "$work/elsewhere"
tar xzf "$work/pagoda-test.tar.gz" -C "$work/elsewhere"
rm -r "$work/pagoda-test" "$work/pagoda-test.tar.gz"
prefix=$work/elsewhere/pagoda-test

glibc='linux-vdso|ld-linux|lib(c|m|mvec|dl|rt|pthread)\.so'
for file in bin/pagoda lib/libpagoda.so lib/pagoda/*.so; do
    for path in "$prefix"/$file; do
        outside=$(bare "$(command -v ldd)" "$path" | grep -vE "$glibc" | grep -vF "$prefix/" |
            grep -v 'statically linked' || true)
        [[ -z $outside ]] || fail "$path needs from outside: $outside"
    done
done
no_trace "$prefix"
runs "$prefix"
