#!/usr/bin/env python3
"""The tables of docs/server.md, from the one table of request fields.

    tools/server_docs.py           writes them between their markers
    tools/server_docs.py --check   exit status 1 when they are not what it would write
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "server.md"
API = ROOT / "runtime" / "api"
WHERE = {"C": "chat", "P": "completions", "B": "both"}
TYPES = {"INT": "integer", "NUM": "number", "BOOL": "true, false", "STR": "string",
         "STRS": "string or list", "IDS": "list of ids", "MAP": "object by id", "LIST": "list",
         "OBJ": "object", "ANY": "see note"}
UNITS = {"STR": " bytes", "STRS": " entries", "IDS": " entries", "MAP": " entries",
         "LIST": " entries"}


def number(text):
    value = float(text)
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


def limits(kind, low, high):
    if kind not in ("INT", "NUM") and kind not in UNITS:
        return ""
    if abs(float(high)) >= 2**63:
        return "64 bits"
    return f"{number(low)} to {number(high)}{UNITS.get(kind, '')}"


def fields():
    text = (API / "fields.inc").read_text(encoding="utf-8")
    text = "\n".join(x for x in text.splitlines() if not x.startswith("//"))
    string = r'"((?:[^"\\]|\\.)*)"'
    rows = re.findall(rf"X\((\w+), (\w), (\w+), ([^,]+), ([^,]+), {string},\s*{string}\)", text)
    assert len(rows) == text.count("X("), "a row is not understood"
    yield "| field | of | type | limits | default | meaning |\n|---|---|---|---|---|---|"
    for name, where, kind, low, high, default, note in rows:
        note = note.replace('\\"', '"').replace("|", "\\|")
        yield (f"| `{name}` | {WHERE[where]} | {TYPES[kind]} | {limits(kind, low, high)} | "
               f"{'' if default == 'null' else default} | {note} |")


def names(macro):
    text = (API / "ignored.inc").read_text(encoding="utf-8")
    found = re.findall(rf"^{macro}\((\w+)\)", text, re.M)
    yield from textwrap.wrap(", ".join(f"`{name}`" for name in found), 98)


def written(page):
    for name, lines in (("fields", fields()), ("ignored", names("X")),
                        ("refused", names("REFUSED"))):
        begin, end = f"<!-- {name}: tools/server_docs.py -->\n", f"<!-- end of {name} -->"
        head, rest = page.split(begin)
        page = head + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    return page


def main():
    page = PAGE.read_text(encoding="utf-8")
    if sys.argv[1:] == ["--check"]:
        sys.exit(written(page) != page)
    PAGE.write_text(written(page), encoding="utf-8")


if __name__ == "__main__":
    main()
