#!/usr/bin/env bash
# with_device.sh PAGODA DEVICE COMMAND...
#
# Runs the command, or says that the device is not there and ends with 77.
set -euo pipefail
pagoda=$1 device=$2
shift 2
devices=$("$pagoda" devices 2>&1 || true)
if ! grep -q "^$device " <<<"$devices"; then
    echo "skipped: there is no $device on this machine"
    exit 77
fi
exec "$@"
