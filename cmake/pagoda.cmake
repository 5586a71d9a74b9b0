# Helpers of the build: one call per room, one per plugin; tests are found by their names.

# Warnings, language level and sanitizers of all targets of this project.
function(pagoda_setup_compiler)
    add_compile_options(
        -Wall -Wextra -Wshadow -Wvla -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=
        $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
    if(PAGODA_WERROR)
        add_compile_options(-Werror)
    endif()
    if(PAGODA_COVERAGE)
        add_link_options(--coverage)
    endif()
    if(PAGODA_SANITIZE)
        string(REPLACE ";" "," list "${PAGODA_SANITIZE}")
        add_compile_options(-fsanitize=${list} -fno-sanitize-recover=all -fno-omit-frame-pointer)
        add_link_options(-fsanitize=${list})
    endif()
endfunction()

# PAGODA_ABI_MINOR: the minor of the plugin interface, for manifests.
file(STRINGS ${PROJECT_SOURCE_DIR}/include/pagoda/plugin.h PAGODA_ABI_MINOR
     REGEX "^#define PGD_ABI_MINOR [0-9]+$")
string(REGEX REPLACE "[^0-9]" "" PAGODA_ABI_MINOR "${PAGODA_ABI_MINOR}")
set(PAGODA_SDK_INCLUDE ${PROJECT_SOURCE_DIR}/include)
include(${PROJECT_SOURCE_DIR}/cmake/pagoda-sdk.cmake)

# What every target of the runtime and the kernels needs.
add_library(pagoda_headers INTERFACE)
target_include_directories(pagoda_headers INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/runtime ${PROJECT_SOURCE_DIR}/kernels)

# A room: the object library pgd_<name> from the sources of a folder (tests left out). Further
# arguments are the libraries it uses. Does nothing while the folder has no source.
function(pagoda_add_room name folder)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c ${folder}/*.cpp)
    list(FILTER sources EXCLUDE REGEX "_test\\.c$")
    if(NOT sources)
        return()
    endif()
    add_library(pgd_${name} OBJECT ${sources})
    target_link_libraries(pgd_${name} PUBLIC pagoda_headers ${ARGN})
    if(NOT name MATCHES "^(cli|serve)$")
        set_property(GLOBAL APPEND PROPERTY PAGODA_ROOMS pgd_${name})
    endif()
endfunction()

# Unit tests of a folder: x_test.c becomes the program and the ctest <name>.x with label <name>.
# Further arguments are libraries the tests need beside pagoda_static.
function(pagoda_add_unit_tests name folder)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*_test.c)
    if(NOT BUILD_TESTING OR NOT CMOCKA_FOUND)
        return()
    endif()
    foreach(source IN LISTS sources)
        get_filename_component(stem ${source} NAME_WE)
        string(REGEX REPLACE "_test$" "" stem ${stem})
        set(target test_${name}_${stem})
        add_executable(${target} ${source})
        target_link_libraries(${target} PRIVATE pagoda_static PkgConfig::CMOCKA ${ARGN} m)
        target_compile_definitions(${target} PRIVATE
            PGD_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
            PGD_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
            PGD_BINARY_DIR="${PROJECT_BINARY_DIR}")
        set_target_properties(${target} PROPERTIES
            OUTPUT_NAME ${name}.${stem}
            RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
        add_test(NAME ${name}.${stem} COMMAND ${target})
        set_tests_properties(${name}.${stem} PROPERTIES LABELS ${name} TIMEOUT 900)
    endforeach()
endfunction()

# A plugin: the library lib/pagoda/<name>.so, which sees the plugin SDK only. Its manifest, if the
# folder has one, is put beside it.
function(pagoda_add_plugin name)
    add_library(${name} MODULE ${ARGN})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    set_target_properties(${name} PROPERTIES
        PREFIX ""
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/pagoda
        INSTALL_RPATH "$ORIGIN/..")
    install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/pagoda)
    file(GLOB manifests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.json)
    foreach(manifest IN LISTS manifests)
        get_filename_component(file ${manifest} NAME)
        configure_file(${manifest} ${PROJECT_BINARY_DIR}/lib/pagoda/${file} COPYONLY)
        install(FILES ${manifest} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pagoda)
    endforeach()
endfunction()

# add_subdirectory for each folder below (or the folder itself) that has a CMakeLists.txt.
function(pagoda_add_folders)
    foreach(pattern IN LISTS ARGN)
        file(GLOB lists CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern}/CMakeLists.txt)
        foreach(list IN LISTS lists)
            get_filename_component(folder ${list} DIRECTORY)
            add_subdirectory(${folder})
        endforeach()
    endforeach()
endfunction()

# A ctest that needs plugins: runs with PAGODA_PLUGIN_PATH at the built ones.
function(pagoda_add_device_test name label target)
    add_test(NAME ${name} COMMAND ${target} ${ARGN})
    set_tests_properties(${name} PROPERTIES
        LABELS "${label}" TIMEOUT 1800
        ENVIRONMENT "PAGODA_PLUGIN_PATH=${PROJECT_BINARY_DIR}/lib/pagoda")
endfunction()
