# cmake -DBUILD=<build folder> -DOUT=<folder> -DNAME=<name> -P bundle.cmake
#
# Makes OUT/NAME/ and OUT/NAME.tar.gz: the installed tree of a build, with the shared libraries that
# it needs beyond glibc in its lib/ and their licences in share/doc/pagoda/. It runs on any Linux of
# the same processor whose glibc is at least as young as the one it was built with.
cmake_minimum_required(VERSION 3.22)

set(root ${OUT}/${NAME})
file(REMOVE_RECURSE ${root})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${root} --strip
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

file(GLOB plugins ${root}/lib/pagoda/*.so)
file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES ${root}/bin/pagoda
    LIBRARIES ${root}/lib/libpagoda.so
    MODULES ${plugins}
    RESOLVED_DEPENDENCIES_VAR libraries
    PRE_EXCLUDE_REGEXES "^libpagoda" "^ld-linux" "^lib(c|m|mvec|dl|rt|pthread|resolv|util)\\.so")

foreach(library IN LISTS libraries)
    get_filename_component(name ${library} NAME)
    file(COPY_FILE ${library} ${root}/lib/${name})
    # Debian keeps the licence beside the package; /lib and /usr/lib are one folder there.
    get_filename_component(real ${library} REALPATH)
    string(REGEX REPLACE "^/usr" "" short ${real})
    execute_process(COMMAND dpkg-query -S ${real} ${short}
                    OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE ignored)
    if(owner MATCHES "^([^:\n]+):")
        set(package ${CMAKE_MATCH_1})
        if(EXISTS /usr/share/doc/${package}/copyright)
            file(COPY_FILE /usr/share/doc/${package}/copyright
                 ${root}/share/doc/pagoda/${package}.copyright)
        endif()
    endif()
endforeach()

execute_process(COMMAND ${CMAKE_COMMAND} -E tar czf ${NAME}.tar.gz ${NAME}
                WORKING_DIRECTORY ${OUT} COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "${root}.tar.gz")
