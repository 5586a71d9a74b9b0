#!/bin/sh
# Checks the outside of plugins: exactly one exported symbol, no static constructors, no library
# but libc's own, no symbol of the host.
#
#   symbols.sh PLUGIN.so ...          all must pass
#   symbols.sh --refuse PLUGIN.so     this one must fail (a test of the test)
set -u

refuse=0
if [ "$1" = --refuse ]; then
    refuse=1
    shift
fi

bad=0
complain() {
    echo "$1"
    bad=1
}

for plugin in "$@"; do
    exported=$(nm -D --defined-only "$plugin" | awk '{ print $3 }')
    if [ "$exported" != pgd_plugin_v0 ]; then
        complain "$plugin exports: $(echo $exported)"
    fi
    host=$(nm -D --undefined-only "$plugin" | awk '{ print $2 }' | grep '^pgd_')
    if [ -n "$host" ]; then
        complain "$plugin needs symbols of the host: $(echo $host)"
    fi
    # crtbegin puts one entry there (frame_dummy); everything more is a constructor.
    array=$(readelf -SW "$plugin" | awk '$2 == ".init_array" || $3 == ".init_array" {
        for (i = 1; i <= NF; i++) if ($i == "INIT_ARRAY") print $(i + 3) }')
    if [ "$((0x${array:-0}))" -gt 8 ]; then
        complain "$plugin has static constructors: .init_array of $((0x$array)) bytes"
    fi
    needed=$(readelf -dW "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|libdl|libpthread|libgcc_s|libstdc\+\+|ld-linux[^.]*)\.so')
    if [ -n "$needed" ]; then
        complain "$plugin needs libraries: $(echo $needed)"
    fi
done

if [ "$refuse" = 1 ]; then
    if [ "$bad" = 0 ]; then
        echo "expected a complaint"
        exit 1
    fi
    exit 0
fi
exit $bad
