#!/usr/bin/env bash
# locals.sh CACHE
#
# PoCL 3.1 may turn a local array whose address is a constant into a variable of the process, which
# its threads then share (kernels/portable/dialect.h, K_SHARED). The kernels it built have none.
set -euo pipefail
command -v nm >/dev/null || exit 77
found=0
while IFS= read -r library; do
    found=$((found + 1))
    if shared=$(nm "$library" | grep -iE ' [bd] pgd_'); then
        echo "$library: $shared"
        exit 1
    fi
done < <(find "$1" -name 'pgd_*.so')
if ((found == 0)); then
    echo "skipped: no kernels of PoCL in $1"
    exit 77
fi
echo "$found kernels without variables of the process"
