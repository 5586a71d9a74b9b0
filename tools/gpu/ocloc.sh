#!/usr/bin/env bash
# ocloc.sh FOLDER
#
# Puts Intel's offline compiler into FOLDER, from Debian's packages, without installing them: an
# installed one brings drivers that every program's OpenCL and Level Zero loaders open. Prints what
# to configure with; the test ze.ocloc runs then.
set -euo pipefail
[[ $# == 1 ]] || { sed -n 's/^# \{0,1\}//;2,6p' "$0" >&2; exit 2; }
packages=(intel-opencl-icd libigc1 libigdfcl1 libigdgmm12 libopencl-clang14 libllvmspirvlib14)
mkdir -p "$1"
cd "$1"
apt-get download "${packages[@]}"
for package in *.deb; do
    dpkg -x "$package" .
done
ln -sf libiga64.so.1 usr/lib/x86_64-linux-gnu/libiga64.so # the disassembler, as ocloc calls it
cat >ocloc <<'END'
#!/bin/sh
folder=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$folder/usr/lib/x86_64-linux-gnu exec "$folder/usr/bin/ocloc" "$@"
END
chmod +x ocloc
echo "cmake -DPAGODA_OCLOC=$PWD/ocloc ..."
