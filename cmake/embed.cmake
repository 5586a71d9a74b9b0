# cmake -DOUT=<file> -DFOLDER=<folder> -DNAMES=<a,b,c> -P embed.cmake
#
# Writes files of a folder as the C table page_files: path, bytes, length.
cmake_minimum_required(VERSION 3.22)
set(text "// Made by cmake/embed.cmake.\n")
set(rows "")
string(REPLACE "," ";" names "${NAMES}")
set(number 0)
foreach(name IN LISTS names)
    file(READ ${FOLDER}/${name} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(APPEND text "static const unsigned char file_${number}[] = {${bytes}};\n")
    string(APPEND rows "    {\"/${name}\", file_${number}, sizeof(file_${number})},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUT} "${text}static const page_file page_files[] = {\n${rows}};\n")
