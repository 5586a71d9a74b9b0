# The vendors' libraries of products, on their stand-ins (tests/doubles/blaslt).
foreach(kind cuda hip)
    foreach(case used deterministic no_algorithm fails absent)
        gpu_test(${kind} ${kind}.blaslt.${case} ${kind} bash ${folder}/blaslt.sh ${case} ${kind}
            $<TARGET_FILE:pagoda_program> $<TARGET_FILE:near_tie_test> ${folder}/README.md
            ${nano})
        set_tests_properties(${kind}.blaslt.${case} PROPERTIES TIMEOUT 300
            FIXTURES_REQUIRED gpu_kernels)
    endforeach()
    if(PAGODA_SANITIZE STREQUAL "thread") # 90 s there, the other cases have the same threads
        set_tests_properties(${kind}.blaslt.used PROPERTIES DISABLED ON)
    endif()
endforeach()

# The numbers of backends/cuda are those of cublasLt.h; of HIP there is no header here.
if(PAGODA_NVCC AND EXISTS ${cuda_bin}/../include/cublasLt.h)
    add_test(NAME cuda.blaslt.header COMMAND ${CMAKE_C_COMPILER} -std=gnu11 -fsyntax-only -Wall
        -Werror -I ${PROJECT_SOURCE_DIR}/include -I ${kernels} -I ${PROJECT_SOURCE_DIR}/backends
        -isystem ${cuda_bin}/../include ${folder}/blaslt_header.c)
else()
    add_test(NAME cuda.blaslt.header COMMAND bash -c "echo there is no cublasLt.h; exit 77")
endif()
set_tests_properties(cuda.blaslt.header PROPERTIES LABELS cuda TIMEOUT 60 SKIP_RETURN_CODE 77)
