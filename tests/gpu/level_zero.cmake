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

set(few ${golden}/llama-default/golden.json ${golden}/llama-bf16/golden.json
    ${golden}/mistral-window/golden.json ${golden}/qwen3-window/golden.json)
ze_test(ops.ze ops "" $<TARGET_FILE:ops_test> --plugin-dir ${PROJECT_BINARY_DIR}/lib/pagoda
    --device ze:0 --cases 2 --need-native)
ze_test(golden.ze golden "" $<TARGET_FILE:golden_test> ze:0 ${few})
ze_test(golden.ze.late golden "pauses=300;pause_us=400;seed=7" $<TARGET_FILE:golden_test> ze:0
    ${golden}/llama-default/golden.json)
ze_test(golden.ze.graphs golden "seed=3" $<TARGET_FILE:golden_test> "ze:0{graphs=on}"
    ${golden}/llama-default/golden.json)
ze_test(golden.ze.f32 golden "f64=0" $<TARGET_FILE:golden_test> ze:0
    ${golden}/llama-default/golden.json)
ze_test(engine.near_tie.ze engine "" $<TARGET_FILE:near_tie_test> cpu ze:0 0.02 ${nano}
    ${golden}/llama-default ${golden}/qwen3-window)
ze_test(engine.invariance.ze "engine;slow" "" $<TARGET_FILE:invariance_test> ze:0
    ${golden}/llama-default)
ze_test(nano.ze "nano;slow" "" ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/nano/nano_test.py
    $<TARGET_FILE:pagoda_program> ${nano} ze:0)
