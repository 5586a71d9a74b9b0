#!/usr/bin/env bash
# ocloc.sh OCLOC SPIRV
#
# Intel's own compiler makes code of the SPIR-V that is in the plugin (SPIRV.f64.spv ...), for chips
# with double precision and without, and of the matrix-unit kernels for chips with such units: there
# is the unit's instruction in each product, and no register is spilled.
set -euo pipefail
ocloc=$1 spirv=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# compile VARIANT CHIP FLAGS
compile() {
    "$ocloc" compile -file "$spirv.$1.spv" -spirv_input -device "$2" -output "$1" \
        -options "-ze-opt-greater-than-4GB-buffer-required $3" >said 2>&1 ||
        { cat said; exit 1; }
    echo "$1 for $2: $(stat -c %s "$1"*.bin) bytes"
}

compile f64 pvc ""
compile f32 acm-g10 ""
for pair in dpas16:pvc dpas8:acm-g10; do
    unit=${pair%:*} chip=${pair#*:}
    compile "$unit" "$chip" "-ze-opt-large-register-file"
    if grep -i spill said; then exit 1; fi
    mkdir "$unit"
    "$ocloc" disasm -file "$unit"*.bin -device "$chip" -dump "$unit" >/dev/null 2>&1
    for kernel in gemm_few_bf16 gemm_few_f16 gemm_many_bf16 gemm_many_f16; do
        n=$(grep -c "dpas.8x8" "$unit/pgd_matrix_${kernel}_KernelHeap.asm") || true
        echo "$unit $kernel: ${n:-no code} dpas"
        [[ ${n:-0} -ge 8 ]]
    done
done
