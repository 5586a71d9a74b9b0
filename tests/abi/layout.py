#!/usr/bin/env python3
"""The layout snapshot of the plugin interface.

Reads the structs and enums of include/pagoda/{status,types,backend,ops,plugin}.h (after the
preprocessor, so that lists made by macros are seen), lets a generated C program print where each
field lies, and compares with the snapshots beside this file:

  layout.txt        "struct field offset size" of every field; its SHA-256 gives PGD_ABI_HASH
  declarations.txt  the C declaration of every field, and every constant with its number

  layout.py --cc gcc           compare; exit status 1 on any difference
  layout.py --cc gcc --update  write both snapshots and set PGD_ABI_HASH in plugin.h
"""

import argparse
import difflib
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent.parent / "include"
HEADERS = ["status", "types", "backend", "ops", "plugin"]


def preprocess(cc):
    """Text of the five headers without comments and with macros expanded."""
    source = "".join(f"#include <pagoda/{name}.h>\n" for name in HEADERS)
    command = [cc, "-std=c11", "-E", "-I", str(INCLUDE), "-x", "c", "-"]
    out = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    lines, ours = [], False
    for line in out.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = "/pagoda/" in marker.group(1)
        elif ours:
            lines.append(line)
    return re.sub(r"__attribute__\s*\(\(.*?\)\)\)?", "", " ".join(lines))


def bodies(text, pattern):
    """(match, text between the braces) of every match that ends at an opening brace."""
    for match in re.finditer(pattern, text):
        depth, at = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        yield match, text[match.end() : at - 1]


def field_name(declaration):
    pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", declaration)
    if pointer:
        return pointer.group(1)
    return re.search(r"(\w+)\s*(\[[^\]]*\]\s*)*$", declaration).group(1)


def structs(text):
    """[(struct, [(field, declaration)])] in order of definition."""
    result = []
    for match, body in bodies(text, r"(typedef )?struct (pgd_\w+)\s*\{"):
        fields = [" ".join(part.split()) for part in body.split(";")]
        result.append((match, [(field_name(f), f) for f in fields if f]))
    return [((m.group(1) or "") + "struct", m.group(2), f) for m, f in result]


def constants(text):
    names = []
    for _, body in bodies(text, r"enum\s*\{"):
        names += re.findall(r"(PGD_\w+)\s*(?:=[^,]*)?(?:,|$)", body.strip() + ",")
    return names


def program(found, names):
    lines = ["#include <stdio.h>"] + [f"#include <pagoda/{name}.h>" for name in HEADERS]
    lines.append("int main(void) {")
    for _, struct, fields in found:
        for field, _ in fields:
            lines.append(
                f'printf("{struct} {field} %zu %zu\\n", offsetof(struct {struct}, {field}), '
                f"sizeof(((struct {struct} *)0)->{field}));"
            )
        lines.append(f'printf("{struct} . 0 %zu\\n", sizeof(struct {struct}));')
    lines.append('printf("--\\n");')
    for name in names:
        lines.append(f'printf("{name} %lld\\n", (long long){name});')
    return "\n".join(lines + ["return 0;", "}", ""])


def snapshots(cc):
    """The texts of layout.txt and declarations.txt as they should be."""
    text = preprocess(cc)
    found, names = structs(text), constants(text)
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "layout.c"), pathlib.Path(folder, "layout")
        source.write_text(program(found, names))
        subprocess.run(
            [cc, "-std=c11", "-I", str(INCLUDE), str(source), "-o", str(binary)], check=True
        )
        out = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout
    layout, numbers = out.split("--\n")
    declared = "".join(f"{s}: {d}\n" for _, s, fields in found for _, d in fields)
    return layout, declared + numbers


def hash_of(layout):
    return hashlib.sha256(layout.encode()).hexdigest()[:16]


def compare(path, text):
    old = path.read_text() if path.exists() else ""
    if old == text:
        return True
    diff = difflib.unified_diff(
        old.splitlines(), text.splitlines(), f"{path.name} (snapshot)", "headers", lineterm="", n=1
    )
    print("\n".join(diff))
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cc", default="cc", help="C compiler")
    parser.add_argument("--update", action="store_true", help="write the snapshots and the hash")
    args = parser.parse_args()
    layout, declared = snapshots(args.cc)
    header = INCLUDE / "pagoda" / "plugin.h"
    pattern = r"(#define PGD_ABI_HASH UINT64_C\(0x)([0-9a-f]{16})\)"
    if args.update:
        (HERE / "layout.txt").write_text(layout)
        (HERE / "declarations.txt").write_text(declared)
        header.write_text(re.sub(pattern, rf"\g<1>{hash_of(layout)})", header.read_text()))
        return 0
    good = compare(HERE / "layout.txt", layout) & compare(HERE / "declarations.txt", declared)
    stated = re.search(pattern, header.read_text()).group(2)
    if stated != hash_of(layout):
        print(f"plugin.h: PGD_ABI_HASH is {stated}, the layout's is {hash_of(layout)}")
        good = False
    if not good:
        print("If the change is meant, run tests/abi/layout.py --update and review the diff.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
