#!/usr/bin/env bash
# hang.sh PAGODA KIND [BEHIND]
#
# A driver that does not answer is given up after 30 s: `pagoda devices` says so and goes on. With
# behind.c's library in the process these 30 s take two.
set -euo pipefail
export PAGODA_DOUBLE=hang=1
start=$(date +%s%N)
text=$(LD_PRELOAD=${3-} timeout 100 "$1" devices --explain 2>&1)
took=$((($(date +%s%N) - start) / 1000000))
echo "$text"
echo "took $took ms"
grep -q '^cpu:0 ' <<<"$text"
grep -q "$2: the driver gave no answer in 30 s" <<<"$text"
((took >= 1900)) # a wait that ends at once is none
