# For plugins, inside this project and outside it: find_package(pagoda-sdk) includes this file.
#
#   pagoda_sdk_plugin(KIND source...)
#
# makes the library libpgd-KIND.so (target pgd-KIND) with one exported symbol, and beside it
# libpgd-KIND.json from the file of that name in the caller's folder. "library" and "abi" of the
# manifest are filled in here, so they are never wrong. In a project of its own the plugin is
# installed to lib/pagoda, where a pagoda of that prefix finds it.
function(pagoda_sdk_plugin kind)
    set(name libpgd-${kind})
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${name}.json)
    file(READ ${source} manifest)
    string(JSON stated GET "${manifest}" kind)
    if(NOT stated STREQUAL kind)
        message(FATAL_ERROR "${source}: its kind is \"${stated}\", not \"${kind}\"")
    endif()
    string(JSON manifest SET "${manifest}" library "\"${name}.so\"")
    string(JSON manifest SET "${manifest}" abi
        "{\"major\": 0, \"minor\": ${PAGODA_ABI_MINOR}, \"min_host_minor\": 1}")
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.json "${manifest}\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})

    add_library(pgd-${kind} MODULE ${ARGN})
    target_include_directories(pgd-${kind} PRIVATE ${PAGODA_SDK_INCLUDE})
    set_target_properties(pgd-${kind} PROPERTIES
        PREFIX lib
        C_STANDARD 11
        C_STANDARD_REQUIRED ON
        C_VISIBILITY_PRESET hidden
        CXX_VISIBILITY_PRESET hidden
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    if(PROJECT_IS_TOP_LEVEL)
        install(TARGETS pgd-${kind} LIBRARY DESTINATION lib/pagoda)
        install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.json DESTINATION lib/pagoda)
    endif()
endfunction()
