#!/usr/bin/env bash
# hang.sh PAGODA KIND
#
# A driver that does not answer is given up after 30 s: `pagoda devices` says so and goes on.
set -euo pipefail
export PAGODA_DOUBLE=hang=1
text=$(timeout 100 "$1" devices --explain 2>&1)
echo "$text"
grep -q '^cpu:0 ' <<<"$text"
grep -q "$2: the driver gave no answer in 30 s" <<<"$text"
