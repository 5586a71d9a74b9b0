# cmake -DKERNELS=<kernels> -DCLANG=... -DTRANSLATOR=... -DVALIDATOR=... -DOUT=<file.c>
#       -P spirv.cmake
#
# Compiles the kernels to SPIR-V, the portable ones with double precision and without, those for
# matrix units for two sizes of sub-groups, and writes all as bytes in a C file. Optimisation is
# left to the driver: what clang makes of a kernel has instructions that the translator does not
# know. Only calls are made part of their kernel: SPIR-V does not keep that a function with a
# barrier may not be moved.
cmake_minimum_required(VERSION 3.22)

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(NOT code EQUAL 0)
        message(FATAL_ERROR "${ARGN}: ${said}")
    endif()
endfunction()

# Per variant: the room of the kernels and its options. The matrix-unit kernels want a size of
# sub-groups, which SPIR-V 1.1 brought and opencl2.2 is the first to take.
set(f64 portable)
set(f32 portable -DK_NO_F64)
set(dpas16 matrix -DK_NO_F64 -DKM_DPAS=16)
set(dpas8 matrix -DK_NO_F64 -DKM_DPAS=8)
set(portable_environment opencl2.0)
set(matrix_environment opencl2.2)

set(text "#include \"ze.h\"\n\n")
foreach(variant f64 f32 dpas16 dpas8)
    set(file ${OUT}.${variant})
    set(options ${${variant}})
    list(POP_FRONT options room)
    run(${CLANG} -target spir64 -x cl -cl-std=CL1.2 -Xclang -finclude-default-header -O0
        -Xclang -disable-O0-optnone "-DK_FN=static __attribute__((always_inline))" ${options}
        -I ${KERNELS} -emit-llvm -c ${KERNELS}/${room}/device.cu -o ${file}.bc)
    run(${TRANSLATOR} ${file}.bc -o ${file}.spv --spirv-max-version=1.2)
    if(VALIDATOR)
        run(${VALIDATOR} --target-env ${${room}_environment} ${file}.spv)
    endif()
    file(READ ${file}.spv bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND text "static const _Alignas(8) unsigned char ${variant}_bytes[] = {\n${bytes}};\n"
        "const ze_kernels ze_kernels_${variant} = {${variant}_bytes, sizeof(${variant}_bytes)};\n")
endforeach()
file(WRITE ${OUT} "${text}")
