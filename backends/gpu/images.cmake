# Kernels compiled for chips, inside a plugin. They take a minute to make and are the same in each
# build, so builds for sanitizers and figures of coverage go without.
set(images_default ON)
if(PAGODA_SANITIZE OR PAGODA_COVERAGE)
    set(images_default OFF)
endif()
option(PAGODA_GPU_IMAGES "the plugins cuda and hip have kernels inside" ${images_default})

# pagoda_gpu_images(NAME OUT ARCH=FILE...): the C file OUT defines the list NAME of gpu_stream_image
# with each FILE for its ARCH (empty: the driver chooses in it).
function(pagoda_gpu_images name out)
    set(blobs "")
    set(rows "")
    set(files "")
    set(n 0)
    foreach(image IN LISTS ARGN)
        string(REGEX MATCH "^([^=]*)=(.*)$" _ "${image}")
        set(label ${name}_${n})
        string(APPEND blobs
            "__asm__(\".pushsection .rodata\\n.balign 64\\n\"\n"
            "        \".globl ${label}\\n.hidden ${label}\\n${label}:\\n\"\n"
            "        \".incbin \\\"${CMAKE_MATCH_2}\\\"\\n.byte 0\\n.popsection\\n\");\n"
            "extern const unsigned char ${label}[];\n")
        string(APPEND rows "    {\"${CMAKE_MATCH_1}\", ${label}},\n")
        list(APPEND files ${CMAKE_MATCH_2})
        math(EXPR n "${n} + 1")
    endforeach()
    string(CONCAT text
        "#include \"gpu/stream.h\"\n\n${blobs}\n"
        "extern const gpu_stream_image ${name}[];\n"
        "const gpu_stream_image ${name}[] = {\n${rows}    {\"\", NULL},\n};\n")
    file(GENERATE OUTPUT ${out} CONTENT "${text}")
    set_source_files_properties(${out} PROPERTIES GENERATED ON OBJECT_DEPENDS "${files}")
endfunction()
