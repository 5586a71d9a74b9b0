#!/usr/bin/env python3
"""The rules of style that a machine can judge and no compiler does.

    ci/lint.py            checks the tree, prints FILE:LINE: what is wrong, exits 1 if anything is

Each rule is one function that yields (line, sentence). Formatting is clang-format's business,
rooms and arrows are that of ci/rooms.py.
"""
import re
import sys

import source

C_SUFFIXES = (".c", ".h", ".cpp", ".inc")
TEXT_SUFFIXES = C_SUFFIXES + (".py", ".sh", ".cmake", ".txt", ".md", ".json.in")
LINE = 100
FUNCTION = 60
FILE = 600

# Kernels and tables may be longer than what is read in an evening, or seen on a screen.
LONG_FILES = ("kernels/",)
LONG_FUNCTIONS = ("kernels/",)

BANNED = {
    "sprintf": "snprintf", "vsprintf": "vsnprintf", "strcpy": "memcpy with a checked length",
    "strncpy": "memcpy with a checked length", "strcat": "pgd_text_format",
    "strncat": "pgd_text_format", "strtok": "pgd_str", "atoi": "pgd_str_to_*",
    "atol": "pgd_str_to_*", "atoll": "pgd_str_to_*", "atof": "pgd_str_to_*", "gets": "fread",
    "alloca": "an arena",
}
# Depend on the locale that the embedding program has set.
LOCALE = ("strtod", "strtof", "strtold", "isalpha", "isdigit",
          "isalnum", "isspace", "isupper", "islower", "ispunct", "isprint", "toupper", "tolower",
          "strcoll", "strftime", "setlocale", "localeconv")
# strtod is handed digits and an exponent, no radix character.
LOCALE_ALLOWED = {("runtime/base/str_number.c", "strtod")}

# runtime/ knows no hardware: none of these is part of a name, a string or a comment there.
HARDWARE = ("cuda", "cublas", "cudnn", "nccl", "nvrtc", "nvidia", "hip", "hiprtc", "rocm", "rccl",
            "radeon", "amd", "intel", "sse", "avx", "amx", "vnni", "neon", "sve", "opencl", "ocl",
            "pocl", "level_zero", "oneapi", "sycl", "xpu", "vulkan", "metal")
HARDWARE_WORD = re.compile(r"(?<![a-z])(%s)(?![a-z])" % "|".join(HARDWARE), re.IGNORECASE)
# (file, word) pairs that may stand.
HARDWARE_ALLOWED = set()

UNFINISHED = re.compile(r"\b(%s)\b" % "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")))


def is_test(path):
    return path.parts[0] == "tests" or path.stem.endswith("_test")


def check_text(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            yield number, "a tab; indent by 4 spaces"
        if line != line.rstrip():
            yield number, "white space at the end of the line"
        if UNFINISHED.search(line):
            yield number, "unfinished business; finish it or leave the note out"
        if len(line) > LINE and path.suffix in C_SUFFIXES + (".py", ".sh", ".cmake"):
            yield number, f"{len(line)} columns; allowed are {LINE}"
    if not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file"


def check_calls(path, text):
    in_runtime = path.parts[0] == "runtime" and not is_test(path)
    for number, line in enumerate(source.bare_code(text).split("\n"), 1):
        for name in re.findall(r"\b(\w+)\s*\(", line):
            if name in BANNED:
                yield number, f"{name} is banned; use {BANNED[name]}"
            elif in_runtime and name in LOCALE \
                    and (path.as_posix(), name) not in LOCALE_ALLOWED:
                yield number, f"{name} depends on the locale; use what base/str.h has"


def check_words(path, text):
    if path.parts[0] != "runtime":
        return
    for number, line in enumerate(text.split("\n"), 1):
        for word in HARDWARE_WORD.findall(line):
            if (path.as_posix(), word.lower()) not in HARDWARE_ALLOWED:
                yield number, f'the hardware word "{word}"; the runtime names none'


def check_length(path, text):
    name = path.as_posix()
    count = text.count("\n")
    if count > FILE and not name.startswith(LONG_FILES):
        yield count, f"{count} lines; a file has at most {FILE}"
    if name.startswith(LONG_FUNCTIONS) or is_test(path):
        return
    # In formatted text a function starts and ends in the first column, and nothing else ends
    # with a brace alone.
    begin = None
    before = ""
    for number, line in enumerate(source.bare_code(text).split("\n"), 1):
        if line == "}" and begin is not None:
            if number - begin + 1 > FUNCTION:
                yield begin, (f"a function of {number - begin + 1} lines; "
                              f"at most {FUNCTION} are allowed")
            begin = None
        elif re.match(r"[A-Za-z_]", line) and not line.startswith(("extern \"", "namespace")):
            begin = number if not before.rstrip().endswith((",", "(")) else begin
        before = line


def check_opening(path, text):
    if not text.lstrip().startswith(("//", "/*")):
        yield 1, "no comment at the top that says what this file is"


C_RULES = (check_calls, check_words, check_length, check_opening)


def main():
    found = 0
    for path in source.files(*TEXT_SUFFIXES):
        if path.as_posix().startswith(("tests/golden/", "tests/fuzz/corpus")) \
                and path.suffix not in C_SUFFIXES + (".py",):
            continue
        text = (source.ROOT / path).read_text(encoding="utf-8")
        rules = (check_text,) + (C_RULES if path.suffix in C_SUFFIXES else ())
        for rule in rules:
            for number, sentence in rule(path, text):
                print(f"{path}:{number}: {sentence}")
                found += 1
    print(f"lint: {found} found" if found else "lint: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
