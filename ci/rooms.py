#!/usr/bin/env python3
"""Proves the map of the house: who may see whom, and that each name lives in its room.

    ci/rooms.py includes          the include graph of the sources
    ci/rooms.py symbols BUILD     the symbols of the objects, libraries and programs in a build

    cli, serve -> api -> engine -> {sched, model, sample, text} -> {kv, load} -> dev -> base -> os

A room sees itself and all rooms to its right; rooms in one brace do not see each other. Prints
what is wrong, one line each, and exits 1 if anything is.
"""
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import source

LEVELS = (("os",), ("base",), ("dev",), ("kv", "load"), ("sched", "model", "sample", "text"),
          ("engine",), ("api",), ("serve",), ("cli",))
ROOMS = {room: {r for low in LEVELS[:at] for r in low} | {room}
         for at, level in enumerate(LEVELS) for room in level}

# Who may include what outside of runtime/: folder -> prefixes of what it sees beside itself.
# Tests (x_test.c, test_x.h, tests/) see everything.
FOLDERS = {
    "kernels/ref": ("include/pagoda",),
    "kernels": ("include/pagoda", "kernels/cpu", "kernels/portable", "kernels/cuda",
                "kernels/matrix"),
    "backends/common": ("include/pagoda",),
    "backends/gpu": ("include/pagoda", "kernels", "backends/common"),
    "backends": ("include/pagoda", "kernels", "backends/gpu", "backends/common"),
    "plugins": ("include/pagoda", "plugins/layer"),
    "include/pagoda": ("include/pagoda",),
}
REFERENCE_FRIENDS = ("dev", "load")

STANDARD = {f"{n}.h" for n in (
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal "
    "stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath time "
    "uchar wchar wctype").split()}
# Headers of libraries, and the rooms that may use them.
LIBRARIES = {"simdjson.h": ("base",), "xxhash.h": ("base",), "pcre2.h": ("text",),
             "utf8proc.h": ("text",), "openssl/": ("base", "kv", "load", "serve"),
             "event2/": ("serve",), "curl/": ("load",), "hwloc.h": ("os",), "yaml.h": ("cli",)}
GENERATED = ("serve_page.inc",)  # made by the build
SDK = ("status.h", "types.h", "plugin.h", "backend.h", "ops.h")
SYSTEM_MACRO = re.compile(r"^\s*#\s*(?:if|elif|ifdef|ifndef)\b.*\b(_WIN32|__linux__|__APPLE__|"
                          r"__unix__|__FreeBSD__|__x86_64__|__aarch64__|__i386__|__arm__)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# The library returns a status: it never prints, ends the program or asks the locale.
FORBIDDEN_CALLS = {"exit", "_exit", "_Exit", "quick_exit", "abort", "printf", "puts", "putchar",
                   "vprintf", "perror", "stdout", "stderr", "setlocale", "localeconv", "sprintf",
                   "strcpy", "strcat", "strtok", "atoi"}
PROGRAM_ROOMS = ("cli",)
NEEDED = ("libpagoda.so", "libsimdjson.so", "libxxhash.so", "libpcre2-8.so", "libutf8proc.so",
          "libcrypto.so", "libssl.so", "libevent", "libyaml-0.so", "libstdc++.so", "libgcc_s.so",
          "libm.so", "libc.so", "libdl.so", "libpthread.so", "ld-linux")


def is_test(path):
    return path.parts[0] == "tests" or path.stem.endswith("_test") or \
        path.stem.startswith("test_")


# Includes -------------------------------------------------------------------------------------

def resolve(path, name):
    """The file of this tree that an include means, or None."""
    own_kernels = f"kernels/{path.parts[1]}" if path.parts[0] == "backends" else "kernels"
    for folder in (path.parent.as_posix(), "include", "runtime", "kernels", "backends",
                   own_kernels):
        found = Path(folder) / name
        if (source.ROOT / found).is_file():
            return Path(os.path.normpath(found))
    return None


def check_room_include(room, target):
    """A sentence if code of the room may not include this file of the tree."""
    top = target.parts[0]
    if top == "include":
        if room == "os" and target.name != "status.h":
            return "os sees only pagoda/status.h"
        return None
    if top == "runtime":
        other = target.parts[1]
        return None if other in ROOMS[room] else f"{room} may not see {other}"
    if target.as_posix().startswith("kernels/ref/") and room in REFERENCE_FRIENDS:
        return None
    return f"{room} may not see {target.parent}"


def check_system_include(room, name):
    if name in STANDARD:
        return None
    for prefix, rooms in LIBRARIES.items():
        if name.startswith(prefix):
            return None if room in rooms else f"<{name}> belongs to {', '.join(rooms)}"
    if room == "os" or (room == "base" and "." not in name):
        return None
    return f"<{name}> is not standard C; only runtime/os speaks to the system"


def check_folder_include(path, target):
    name = path.as_posix()
    for folder, seen in FOLDERS.items():
        if name.startswith(folder + "/"):
            own = "/".join(path.parts[:2])
            if target.as_posix().startswith("kernels/ref/") and own != "kernels/ref":
                return "kernels/ref is for dev and for tests"
            if target.as_posix().startswith(tuple(p + "/" for p in seen + (own,))):
                break
            return f"{own} may not see {target}"
    else:
        return None
    if target.as_posix() == "include/pagoda/pagoda.h":
        return "pagoda.h is for embedders; the plugin SDK and plugins never include it"
    return None


def check_include(path, quote, name):
    target = resolve(path, name)
    if target is None and quote == '"':
        return None if name in GENERATED else f'"{name}" is not in the tree'
    if path.parts[0] == "runtime" and len(path.parts) > 2:
        room = path.parts[1]
        if room not in ROOMS:
            return f"{room} is not a room; rooms are: {', '.join(ROOMS)}"
        return check_room_include(room, target) if target else check_system_include(room, name)
    if target is not None:
        if path.as_posix() == "include/pagoda/pagoda.h":
            return None if target.parts[0] == "include" else f"pagoda.h may not see {target}"
        return check_folder_include(path, target)
    if path.parts[0] == "include" and name not in STANDARD:
        return f"<{name}>: the doors need standard C only"
    return None


def check_includes():
    for path in source.files(".c", ".h", ".cpp", ".inc"):
        if is_test(path):
            continue
        text = source.without_comments((source.ROOT / path).read_text(encoding="utf-8"))
        for number, line in enumerate(text.split("\n"), 1):
            match = INCLUDE.match(line)
            wrong = check_include(path, *match.groups()) if match else None
            if path.parts[0] == "runtime" and path.parts[1] != "os" and SYSTEM_MACRO.match(line):
                wrong = "a question about the system; only runtime/os asks"
            if wrong:
                yield f"{path}:{number}: {wrong}"


# Symbols --------------------------------------------------------------------------------------

def nm(paths, *flags):
    """(path, kind, name) of the symbols of objects or libraries."""
    out = subprocess.run(["nm", "-A", "-P", *flags, *map(str, paths)], check=True,
                         capture_output=True, text=True).stdout
    for line in out.splitlines():
        path, _, rest = line.partition(": ")
        fields = rest.split()
        if len(fields) >= 2 and len(fields[1]) == 1:
            yield path, fields[1], fields[0]


def declared_names(*headers):
    """The words of headers of include/pagoda (all, if none is named)."""
    folder = source.ROOT / "include" / "pagoda"
    paths = [folder / h for h in headers] or sorted(folder.glob("*.h"))
    return {word for p in paths
            for word in re.findall(r"\bpgd_\w+", source.bare_code(p.read_text(encoding="utf-8")))}


def room_objects(build):
    """room -> its objects; kernels/ref counts as the room "ref"."""
    out = defaultdict(list)
    for path in sorted(build.rglob("*.o")):
        match = re.search(r"/CMakeFiles/pgd_(\w+)\.dir/", path.as_posix())
        if match and (match[1] in ROOMS or match[1] == "ref"):
            out[match[1]].append(path)
    return out


def may_call(room, other):
    if room == "ref":
        return other in ("ref", "base")
    return other in ROOMS[room] or (other == "ref" and room in REFERENCE_FRIENDS)


def belongs(room, name, public):
    if name.startswith(f"pgd_{room}_") or name in public or name == "main":
        return True
    return (room == "base" and name.startswith("pgd_")) or \
        (room in PROGRAM_ROOMS and name.startswith(f"{room}_"))


def short(path):
    match = re.search(r"/pgd_(\w+)\.dir/(.*)\.o$", path)
    return f"{match[1]}: {Path(match[2]).name}"


def check_objects(build):
    objects = room_objects(build)
    if not {"os", "base", "dev", "engine"} <= objects.keys():
        yield f"{build}: no objects of the rooms; build first"
        return
    public = declared_names()
    owner = {}
    for room, paths in objects.items():
        for path, kind, name in nm(paths, "--defined-only", "--extern-only"):
            if kind in "TDBRGSC":
                owner[name] = room
                if not belongs(room, name, public):
                    yield f"{short(path)}: {name} does not begin with pgd_{room}_"
    for room, paths in objects.items():
        for path, _, name in nm(paths, "--undefined-only"):
            if name in owner and not may_call(room, owner[name]):
                yield f"{short(path)}: calls {name} of {owner[name]}: a wrong arrow"
            if name in FORBIDDEN_CALLS and room not in PROGRAM_ROOMS:
                yield f"{short(path)}: uses {name}, which the library never does"


def check_linked(build):
    """The library and the program: what they need and what they show."""
    library = build / "lib" / "libpagoda.so"
    for path in (library, build / "bin" / "pagoda"):
        if not path.exists():
            yield f"{path}: not built"
            continue
        out = subprocess.run(["ldd", str(path)], check=True, capture_output=True, text=True).stdout
        for line in out.splitlines():
            name = Path(line.split()[0]).name
            if not name.startswith(NEEDED + ("linux-vdso",)):
                yield f"{path}: is linked with {name}, which is not on the list of ci/rooms.py"
    if library.exists():
        header = source.ROOT / "include" / "pagoda" / "pagoda.h"
        wanted = set(re.findall(r"\bPGD_API\b[^;(]*?\b(pgd_\w+)\(",
                                source.bare_code(header.read_text(encoding="utf-8"))))
        # A: the name of the version itself
        shown = {name.split("@")[0] for _, kind, name in nm([library], "-D", "--defined-only")
                 if kind != "A"}
        for name in sorted(shown - wanted):
            yield f"{library}: exports {name}, which pagoda.h does not mark PGD_API"
        for name in sorted(wanted - shown):
            yield f"{library}: does not export {name}, which pagoda.h marks PGD_API"


def main():
    if sys.argv[1:] == ["includes"]:
        wrong = list(check_includes())
    elif len(sys.argv) == 3 and sys.argv[1] == "symbols":
        build = Path(sys.argv[2])
        wrong = list(check_objects(build)) + list(check_linked(build))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    for line in wrong:
        print(line)
    print(f"rooms: {len(wrong)} found" if wrong else "rooms: nothing found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
