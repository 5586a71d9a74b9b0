# Level Zero: the real loader with its checks, over the driver of tests/doubles/level_zero.
set(ze_environment "PAGODA_PLUGIN_PATH=${PROJECT_BINARY_DIR}/lib/pagoda" "POCL_CACHE_DIR=${cache}"
    "ZE_ENABLE_VALIDATION_LAYER=1" "ZE_ENABLE_PARAMETER_VALIDATION=1"
    "LSAN_OPTIONS=suppressions=${folder}/leaks.txt")
set(ze_driver "")
if(TARGET ze-double)
    set(ze_driver "ZE_ENABLE_ALT_DRIVERS=$<TARGET_FILE:ze-double>")
endif()

# ze_test(NAME LABELS DOUBLE COMMAND...): a test on ze:0; DOUBLE is PAGODA_DOUBLE.
function(ze_test name labels double)
    if(TARGET ze-double)
        add_test(NAME ${name} COMMAND bash ${folder}/with_device.sh
            $<TARGET_FILE:pagoda_program> ze:0 ${ARGN})
    else()
        add_test(NAME ${name} COMMAND bash -c "echo the plugin ze was not built; exit 77")
    endif()
    string(REPLACE ";" "\\;" double "${double}")
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 900 SKIP_RETURN_CODE 77
        ENVIRONMENT "${ze_environment};${ze_driver};PAGODA_DOUBLE=${double}")
endfunction()

set(ze_goldens ${goldens})
if(PAGODA_SANITIZE) # what the driver does with launches is the same for each
    set(ze_goldens ${few_goldens})
endif()
ze_test(ops.ze ops "" $<TARGET_FILE:ops_test> --plugin-dir ${PROJECT_BINARY_DIR}/lib/pagoda
    --device ze:0 --cases 2 --need-native)
# A chip with a matrix unit whose driver does not build the kernels for it.
ze_test(ops.ze.matrix ops "matrix=16" $<TARGET_FILE:ops_test>
    --plugin-dir ${PROJECT_BINARY_DIR}/lib/pagoda --device ze:0 --cases 1 --need-native)
ze_test(plan.ze.matrix ops "matrix=16" bash ${folder}/no_matrix.sh
    $<TARGET_FILE:pagoda_program> ${nano})
ze_test(golden.ze golden "" $<TARGET_FILE:golden_test> ze:0 ${ze_goldens})
ze_test(golden.ze.late golden "pauses=300;pause_us=400;seed=7" $<TARGET_FILE:golden_test> ze:0
    ${golden}/llama-default/golden.json)
ze_test(golden.ze.graphs golden "seed=3" $<TARGET_FILE:golden_test> "ze:0{graphs=on}"
    ${golden}/llama-default/golden.json)
ze_test(golden.ze.f32 golden "f64=0" $<TARGET_FILE:golden_test> ze:0
    ${golden}/llama-default/golden.json)
ze_test(engine.near_tie.ze engine "" $<TARGET_FILE:near_tie_test> cpu ze:0 0.02 ${nano}
    ${golden}/llama-default ${golden}/qwen3-window)
ze_test(engine.prefix.ze engine "" $<TARGET_FILE:prefix_test> ze:0)
ze_test(engine.long.ze engine "" ${Python3_EXECUTABLE} ${folder}/long.py
    $<TARGET_FILE:pagoda_program> ${nano} ze:0)
ze_test(devices.chip_names.ze devices "" bash ${folder}/chip_names.sh $<TARGET_FILE:pagoda_program>
    ze:0)
ze_test(engine.invariance.ze "engine;slow" "" $<TARGET_FILE:invariance_test>
    --requests ${requests} ze:0 ${golden}/llama-default ${golden}/qwen3-window)
ze_test(nano.ze "nano;slow" "" ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/nano/nano_test.py
    $<TARGET_FILE:pagoda_program> ${nano} ze:0 --once)

# What Intel's compiler makes of the SPIR-V (tools/gpu/ocloc.sh gets it).
find_program(PAGODA_OCLOC ocloc)
if(PAGODA_OCLOC AND TARGET pgd-ze)
    add_test(NAME ze.ocloc COMMAND bash ${folder}/ocloc.sh ${PAGODA_OCLOC}
        ${PROJECT_BINARY_DIR}/backends/level_zero/spirv.c)
else()
    message(STATUS "tests/gpu: ze.ocloc is skipped, there is no ocloc (Debian: intel-opencl-icd)")
    add_test(NAME ze.ocloc COMMAND bash -c "echo there is no ocloc; exit 77")
endif()
set_tests_properties(ze.ocloc PROPERTIES LABELS "ze;slow" TIMEOUT 1800 SKIP_RETURN_CODE 77)
if(PAGODA_SANITIZE) # of no build of ours
    set_tests_properties(ze.ocloc PROPERTIES DISABLED ON)
endif()

# What goes wrong.
ze_test(failures.ze failures "" bash ${folder}/failures.sh $<TARGET_FILE:pagoda_program> ze
    ZE_ENABLE_ALT_DRIVERS=/nonexistent)
if(TARGET ze-double)
    set(behind "")
    if(NOT PAGODA_SANITIZE) # a sanitizer wants to be the first library of its process
        add_library(gpu-behind MODULE behind.c)
        set_target_properties(gpu-behind PROPERTIES C_VISIBILITY_PRESET default
            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
        set(behind $<TARGET_FILE:gpu-behind>)
    endif()
    add_test(NAME failures.ze.hang COMMAND bash ${folder}/hang.sh $<TARGET_FILE:pagoda_program> ze
        ${behind})
    set_tests_properties(failures.ze.hang PROPERTIES LABELS "failures;slow" TIMEOUT 200
        ENVIRONMENT "${ze_environment};${ze_driver}")
endif()

# The same over OpenCL: a layer of its loader makes the driver fail.
if(TARGET ocl-layer)
    add_test(NAME failures.ocl COMMAND bash ${folder}/failures.sh $<TARGET_FILE:pagoda_program> ocl
        OCL_ICD_VENDORS=/nonexistent)
    set(ocl_failing "PAGODA_PLUGIN_PATH=${PROJECT_BINARY_DIR}/lib/pagoda" "POCL_CACHE_DIR=${cache}"
        "OPENCL_LAYERS=$<TARGET_FILE:ocl-layer>" "LSAN_OPTIONS=suppressions=${folder}/leaks.txt")
    set_tests_properties(failures.ocl PROPERTIES LABELS failures TIMEOUT 600
        ENVIRONMENT "${ocl_failing}")
endif()

# Two engines, one of whose devices is lost.
if(CMOCKA_FOUND)
    add_executable(one_lost_test one_lost_test.c)
    target_link_libraries(one_lost_test PRIVATE pagoda_static PkgConfig::CMOCKA m)
    target_compile_definitions(one_lost_test PRIVATE PGD_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    set_target_properties(one_lost_test PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
    foreach(kind cuda hip)
        gpu_test(${kind} ${kind}.one_lost ${kind} $<TARGET_FILE:one_lost_test> ${${kind}_device})
        set_property(TEST ${kind}.one_lost APPEND PROPERTY ENVIRONMENT "PAGODA_DOUBLE=lose=400")
    endforeach()
    ze_test(failures.ze.one_lost failures "lose=400" $<TARGET_FILE:one_lost_test> ze:0)
    if(TARGET ocl-layer)
        add_test(NAME failures.ocl.one_lost COMMAND one_lost_test ocl:0)
        set_tests_properties(failures.ocl.one_lost PROPERTIES LABELS failures TIMEOUT 300
            ENVIRONMENT "${ocl_failing};PAGODA_DOUBLE=lose=400")
    endif()
endif()

# A driver that hangs is still inside of the loader when the program ends and takes it down.
if(PAGODA_SANITIZE STREQUAL "thread")
    set_tests_properties(failures.ze PROPERTIES DISABLED ON)
endif()
