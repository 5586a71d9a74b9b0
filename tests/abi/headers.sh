#!/bin/sh
# Compiles each header of the plugin SDK and of the extensions alone, as C11, C17 and C++17, with
# every compiler given (default: those of gcc and clang that are there). -Wpadded shows padding that
# is not written out.
#
#   headers.sh [CC ...]
set -eu

include=$(cd "$(dirname "$0")/../../include" && pwd)
flags="-Wall -Wextra -Wpadded -Werror -pedantic -fsyntax-only"

if [ $# -eq 0 ]; then
    for compiler in gcc clang; do
        if command -v "$compiler" >/dev/null; then
            set -- "$@" "$compiler"
        fi
    done
fi

n=0
for compiler in "$@"; do
    for header in status types backend ops plugin limits yardsticks; do
        for mode in c:c11 c:c17 c++:c++17; do
            # A declaration beside the header: nothing else would be an empty unit under -pedantic.
            printf '#include <pagoda/%s.h>\nextern int pgd_header_is_used;\n' "$header" |
                "$compiler" -x "${mode%%:*}" -std="${mode#*:}" $flags -I "$include" -
            n=$((n + 1))
        done
    done
done
echo "$n compilations"
