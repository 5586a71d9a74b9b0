# cmake -DKERNELS=<kernels> -DCLANG=... -DTRANSLATOR=... -DVALIDATOR=... -DOUT=<file.c>
#       -P spirv.cmake
#
# Compiles the portable kernels to SPIR-V, once with double precision and once without, and writes
# both as bytes in a C file. Optimisation is left to the driver: what clang makes of a kernel has
# instructions that the translator does not know. Only calls are made part of their kernel: SPIR-V
# does not keep that a function with a barrier may not be moved.
cmake_minimum_required(VERSION 3.22)

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(NOT code EQUAL 0)
        message(FATAL_ERROR "${ARGN}: ${said}")
    endif()
endfunction()

set(text "#include \"ze.h\"\n\n")
foreach(variant f64 f32)
    set(file ${OUT}.${variant})
    set(options "")
    if(variant STREQUAL f32)
        set(options -DK_NO_F64)
    endif()
    run(${CLANG} -target spir64 -x cl -cl-std=CL1.2 -Xclang -finclude-default-header -O0
        -Xclang -disable-O0-optnone "-DK_FN=static __attribute__((always_inline))" ${options}
        -I ${KERNELS} -emit-llvm -c ${KERNELS}/portable/device.cu -o ${file}.bc)
    run(${TRANSLATOR} ${file}.bc -o ${file}.spv --spirv-max-version=1.2)
    if(VALIDATOR)
        run(${VALIDATOR} --target-env opencl2.0 ${file}.spv)
    endif()
    file(READ ${file}.spv bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND text "static const _Alignas(8) unsigned char ${variant}_bytes[] = {\n${bytes}};\n"
        "const ze_kernels ze_kernels_${variant} = {${variant}_bytes, sizeof(${variant}_bytes)};\n")
endforeach()
file(WRITE ${OUT} "${text}")
