# The plugin SDK: cmake --install BUILD --component pagoda-sdk. No source of the runtime is in it.
#
#   include/pagoda/{status,types,plugin,backend,ops}.h   lib/cmake/pagoda-sdk/*
#   share/pagoda-sdk/{template,naive}                    bin/pagoda-conform (when it is built)
#   share/doc/pagoda-sdk/{vendor,abi,ci}.md, LICENSE         share/pagoda-sdk/ci/*.yml
set(PAGODA_SDK_SHARE ${CMAKE_INSTALL_DATADIR}/pagoda-sdk)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/pagoda-sdk)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/pagoda-sdk-config.cmake.in
    ${PROJECT_BINARY_DIR}/pagoda-sdk-config.cmake INSTALL_DESTINATION ${package}
    PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR PAGODA_SDK_SHARE)
# The version is that of the interface: a plugin for 0.2 builds with 0.2 and whatever appends to it.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pagoda-sdk-config-version.cmake
    VERSION 0.${PAGODA_ABI_MINOR} COMPATIBILITY SameMajorVersion)

foreach(header status types plugin backend ops)
    install(FILES ${PROJECT_SOURCE_DIR}/include/pagoda/${header}.h
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pagoda COMPONENT pagoda-sdk)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/pagoda-sdk-config.cmake
        ${PROJECT_BINARY_DIR}/pagoda-sdk-config-version.cmake
        ${PROJECT_SOURCE_DIR}/cmake/pagoda-sdk.cmake
        DESTINATION ${package} COMPONENT pagoda-sdk)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/plugins/template ${PROJECT_SOURCE_DIR}/plugins/naive
        DESTINATION ${PAGODA_SDK_SHARE} COMPONENT pagoda-sdk)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/deploy/ci
        DESTINATION ${PAGODA_SDK_SHARE} COMPONENT pagoda-sdk)
install(FILES ${PROJECT_SOURCE_DIR}/docs/vendor.md ${PROJECT_SOURCE_DIR}/docs/abi.md
        ${PROJECT_SOURCE_DIR}/docs/ci.md ${PROJECT_SOURCE_DIR}/LICENSE
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/pagoda-sdk COMPONENT pagoda-sdk)
if(TARGET pagoda_conform)
    install(TARGETS pagoda_conform RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT pagoda-sdk)
    foreach(model IN LISTS PAGODA_CONFORM_MODELS)
        install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/golden/models/${model}
                DESTINATION ${CMAKE_INSTALL_DATADIR}/pagoda/conform COMPONENT pagoda-sdk)
    endforeach()
endif()
