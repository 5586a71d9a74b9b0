# pagoda-conform on every GPU plugin: level 3, on what stands for its hardware here. The function is
# that of tests/conform. Many processes, each of which loads its kernels.
conform_test(emu pgd-emu 3)
conform_test(ocl pgd-ocl 3)
foreach(kind cuda hip)
    conform_test(${kind} double-${kind} 3 FILE ${${kind}_plugins}/libpgd-${kind}.so
        --device ${${kind}_device})
    set_property(TEST conform.${kind} APPEND PROPERTY ENVIRONMENT "${${kind}_driver}")
endforeach()
conform_test(ze pgd-ze 3)
set_property(TEST conform.ze APPEND PROPERTY ENVIRONMENT "${ze_driver}"
    "ZE_ENABLE_VALIDATION_LAYER=1" "ZE_ENABLE_PARAMETER_VALIDATION=1")
foreach(kind ocl cuda hip ze)
    set_tests_properties(conform.${kind} PROPERTIES FIXTURES_REQUIRED gpu_kernels)
    if(PAGODA_SANITIZE) # which sees nothing of the kernels, and PoCL takes minutes under it
        set_tests_properties(conform.${kind} PROPERTIES DISABLED ON)
    endif()
endforeach()
foreach(kind emu ocl cuda hip ze)
    set_tests_properties(conform.${kind} PROPERTIES LABELS "conform;slow")
endforeach()
if(PAGODA_SANITIZE STREQUAL "thread") # a second for each of its processes, and emu has no threads
    set_tests_properties(conform.emu PROPERTIES DISABLED ON)
endif()
