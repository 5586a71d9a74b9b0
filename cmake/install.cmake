# What `cmake --install` and the target `bundle` put where:
#
#   bin/pagoda   bin/pagoda-conform   share/pagoda/conform/* (its tiny models)
#   lib/libpagoda.so*   lib/pagoda/*.so, *.json (plugins)   include/pagoda/*.h
#   share/pagoda/models/nano/*       share/doc/pagoda/*
#   lib/cmake/pagoda/*               lib/pkgconfig/pagoda.pc
#
# The tree may be moved as a whole: the program looks for its parts beside itself. The libraries and
# plugins say themselves where they go (runtime/CMakeLists.txt, pagoda_add_plugin).
foreach(target pagoda pagoda_program pagoda_conform)
    if(TARGET ${target})
        # RPATH, not RUNPATH: it also serves what the libraries in lib/ need from each other.
        target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
    endif()
endforeach()

if(TARGET pgd-cpu)
    install(TARGETS pgd-cpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/pagoda)
    install(FILES ${PROJECT_SOURCE_DIR}/backends/cpu/libpgd-cpu.json
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/pagoda)
endif()

# For programs on the library: find_package(pagoda) and pkg-config pagoda. Both say where things are
# relative to themselves.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/pagoda)
install(EXPORT pagoda-targets NAMESPACE pagoda:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/pagoda-config.cmake.in
    ${PROJECT_BINARY_DIR}/pagoda-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pagoda-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pagoda-config.cmake
        ${PROJECT_BINARY_DIR}/pagoda-config-version.cmake DESTINATION ${package})
configure_file(${PROJECT_SOURCE_DIR}/cmake/pagoda.pc.in ${PROJECT_BINARY_DIR}/pagoda.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/pagoda.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The build tree has the same shape, so that its program finds the default model too.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_DATADIR}/pagoda)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models
     ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_DATADIR}/pagoda/models SYMBOLIC)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/nano
        DESTINATION ${CMAKE_INSTALL_DATADIR}/pagoda/models)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

# pagoda-<version>-linux-<processor>/ and .tar.gz: the installed tree and the shared libraries it
# needs beyond glibc.
string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" pagoda_system)
add_custom_target(bundle
    COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DOUT=${PROJECT_BINARY_DIR}
            -DNAME=pagoda-${PROJECT_VERSION}-${pagoda_system}
            -P ${PROJECT_SOURCE_DIR}/cmake/bundle.cmake
    COMMENT "bundling pagoda-${PROJECT_VERSION}-${pagoda_system}"
    VERBATIM)
foreach(target pagoda pagoda_program pagoda_conform pgd-cpu pgd-cuda pgd-hip pgd-ocl pgd-ze
        libpgd-null)
    if(TARGET ${target})
        add_dependencies(bundle ${target})
    endif()
endforeach()
