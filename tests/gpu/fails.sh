#!/usr/bin/env bash
# fails.sh SETTINGS TEST ARGUMENT...
#
# A test that passes, and fails when the stand-in driver misbehaves by SETTINGS.
set -euo pipefail
settings=$1
shift
"$@"
if PAGODA_DOUBLE=$settings "$@"; then
    echo "it passes although the driver has $settings"
    exit 1
fi
echo "with $settings it fails, as it must"
