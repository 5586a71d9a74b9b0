#!/usr/bin/env bash
# chip_names.sh PAGODA DEVICE
#
# The device is found by the address and the uuid that `pagoda devices` gives it.
set -euo pipefail
listed=$("$1" devices --explain)
names=$(sed -n "/^$2 /,/: usable/p" <<<"$listed" | grep -oE '(pci|uuid):[^ ]+')
[[ $(wc -l <<<"$names") == 2 ]] || { echo "$listed"; exit 1; }
while IFS= read -r name; do
    found=$("$1" plan nano --device "$name" --json)
    grep -q "\"device\":\"$2\"" <<<"$found" || { echo "$name: $found"; exit 1; }
    echo "$name is $2"
done <<<"$names"
