#!/usr/bin/env python3
"""The layout snapshots of the plugin interface, and the gate that lets it only grow.

Reads the structs and enums of include/pagoda/{status,types,backend,ops,plugin}.h (after the
preprocessor, so that lists made by macros are seen), lets a generated C program print where each
field lies, and compares with the snapshots beside this file:

  layout.txt        "struct field offset size" of every field; its SHA-256 gives PGD_ABI_HASH
  declarations.txt  the C declaration of every field, every constant with its number, every type
                    of a function, every macro that stands for a value
  minors/0.N/       both, as they were when minor N was kept; never changed again

The headers must be as in the snapshot, and against every kept minor they may only have appended
(appends.py). Once the minor that PGD_ABI_MINOR names is kept, any change needs the next minor.

  layout.py --cc gcc           compare; exit status 1 on any difference
  layout.py --cc gcc --update  write today's snapshot and set PGD_ABI_HASH in plugin.h
  layout.py --cc gcc --keep    the same, and keep this minor: minors/0.N, runtime/dev/minors.h
"""

import argparse
import difflib
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

from appends import Snapshot, refusals

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HASH = r"(#define PGD_ABI_HASH UINT64_C\(0x)([0-9a-f]{16})\)"
MINORS = ROOT / "runtime" / "dev" / "minors.h"
SNAPSHOT = ("layout", "declarations")
HEADERS = ["status", "types", "backend", "ops", "plugin"]


def preprocess(cc, include):
    """Text of the five headers without comments and with macros expanded."""
    source = "".join(f"#include <pagoda/{name}.h>\n" for name in HEADERS)
    command = [cc, "-std=c11", "-E", "-I", str(include), "-x", "c", "-"]
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


def others(text, include):
    """Types that are no structs, and macros that stand for a value."""
    lines = [" ".join(t.split()) for t in re.findall(r"typedef ([^;{}]+);", text)]
    lines = [f"typedef {t}" for t in lines if not re.fullmatch(r"struct (pgd_\w+) \1", t)]
    for name in HEADERS:
        source = (include / "pagoda" / f"{name}.h").read_text()
        for macro, value in re.findall(r"^#define (PGD_\w+)[ \t]+(\S.*)$", source, re.M):
            if macro not in ("PGD_ABI_MINOR", "PGD_ABI_HASH") and not re.search(r"__|\\$", value):
                lines.append(f"#define {macro} {value}")
    return "".join(f"{line}\n" for line in lines)


def snapshots(cc, include):
    """The texts of layout.txt and declarations.txt as they should be."""
    text = preprocess(cc, include)
    found, names = structs(text), constants(text)
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "layout.c"), pathlib.Path(folder, "layout")
        source.write_text(program(found, names))
        subprocess.run(
            [cc, "-std=c11", "-I", str(include), str(source), "-o", str(binary)], check=True
        )
        out = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout
    layout, numbers = out.split("--\n")
    declared = "".join(f"{s}: {d}\n" for _, s, fields in found for _, d in fields)
    return layout, declared + numbers + others(text, include)


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


def read_snapshot(folder):
    return Snapshot(*(folder.joinpath(f"{name}.txt").read_text() for name in SNAPSHOT))


def kept_minors():
    """{minor: snapshot} of the minors that are kept."""
    folders = (HERE / "minors").glob("0.*")
    return {int(folder.name[2:]): read_snapshot(folder) for folder in folders}


def check_kept(new, minor):
    """What is wrong between the kept minors, the headers and the host's list of layouts."""
    found = []
    listed = dict(re.findall(r"X\((\d+), UINT64_C\(0x([0-9a-f]{16})\)\)", MINORS.read_text()))
    kept = kept_minors()
    for number, old in sorted(kept.items()):
        if listed.pop(str(number), None) != hash_of(old.layout):
            found.append(f"{MINORS.name}: minor {number} is not 0x{hash_of(old.layout)}")
        found += [f"against 0.{number}: {why}" for why in refusals(old, new)]
        changed = (old.layout, old.declared) != (new.layout, new.declared)
        if number >= minor and (changed or number > minor):
            found.append(f"0.{number} is kept and does not change any more: an addition needs "
                         f"PGD_ABI_MINOR {max(kept) + 1} in plugin.h")
    return found + [f"{MINORS.name}: minor {number} has no snapshot" for number in listed]


def write(include, layout, declared):
    header = include / "pagoda" / "plugin.h"
    (HERE / "layout.txt").write_text(layout)
    (HERE / "declarations.txt").write_text(declared)
    header.write_text(re.sub(HASH, rf"\g<1>{hash_of(layout)})", header.read_text()))


def keep(layout, declared, minor):
    folder = HERE / "minors" / f"0.{minor}"
    folder.mkdir(parents=True)  # fails when the minor is kept already
    (folder / "layout.txt").write_text(layout)
    (folder / "declarations.txt").write_text(declared)
    line = f"    X({minor}, UINT64_C(0x{hash_of(layout)}))"
    MINORS.write_text(re.sub(r"(\))\n\n#endif", rf"\1 \\\\\n{line}\n\n#endif", MINORS.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cc", default="cc", help="C compiler")
    parser.add_argument("--include", type=pathlib.Path, default=ROOT / "include",
                        help="folder of pagoda/*.h")
    parser.add_argument("--update", action="store_true", help="write the snapshot and the hash")
    parser.add_argument("--keep", action="store_true", help="also keep this minor")
    args = parser.parse_args()
    layout, declared = snapshots(args.cc, args.include)
    header = (args.include / "pagoda" / "plugin.h").read_text()
    minor = int(re.search(r"#define PGD_ABI_MINOR (\d+)", header).group(1))
    if args.update or args.keep:
        write(args.include, layout, declared)
        if args.keep:
            keep(layout, declared, minor)
        return 0
    good = compare(HERE / "layout.txt", layout) & compare(HERE / "declarations.txt", declared)
    if not good:
        print("If the change is meant, run tests/abi/layout.py --update and review the diff.")
    stated = re.search(HASH, header).group(2)
    if stated != hash_of(layout):
        print(f"plugin.h: PGD_ABI_HASH is {stated}, the layout's is {hash_of(layout)}")
        good = False
    found = check_kept(Snapshot(layout, declared), minor)
    print("".join(f"{why}\n" for why in found), end="")
    return 0 if good and not found else 1


if __name__ == "__main__":
    sys.exit(main())
