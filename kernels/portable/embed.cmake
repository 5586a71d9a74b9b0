# cmake -DFOLDER=<kernels/portable> -DOUT=<file.c> -P embed.cmake
#
# Writes the OpenCL source (dialect, parameters, kernels one behind the other) as bytes in a C file.
cmake_minimum_required(VERSION 3.22)

set(text "")
foreach(part dialect.h params.h numbers.k block.k attn.k finish.k gemm.k move.k rows.k sample.k)
    file(READ ${FOLDER}/${part} content HEX)
    string(APPEND text "${content}0a")
endforeach()
string(LENGTH "${text}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" text "${text}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," text "${text}")
file(WRITE ${OUT} "#include <stdint.h>\n\n"
    "extern const char pgd_portable_source[];\nextern const uint64_t pgd_portable_source_bytes;\n"
    "const uint64_t pgd_portable_source_bytes = ${bytes};\n"
    "const char pgd_portable_source[] = {\n${text}0x00};\n")
