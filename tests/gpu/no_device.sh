#!/usr/bin/env bash
# no_device.sh PAGODA
#
# A loader that finds no driver: a sentence, a status, and no device.
set -euo pipefail
export OCL_ICD_VENDORS=/nonexistent
if text=$("$1" run nano --device ocl:0 -p x 2>&1); then
    echo "a run on a device that is not there ends with 0: $text"
    exit 1
fi
echo "$text"
grep -q 'ocl' <<<"$text"
explained=$("$1" devices --explain 2>&1)
grep -qE 'ocl: (there is no device|.*not installed)' <<<"$explained" || {
    echo "devices --explain does not say why: $explained"
    exit 1
}
