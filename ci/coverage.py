#!/usr/bin/env python3
"""Judges what gcovr has counted: ci/coverage.py COVERAGE.json [--list | --quick]

Prints the share of lines of runtime/ and the share of branches of each parser, and exits 1 when one
is below its floor.
"""
import json
import sys

LINES = 90.0
BRANCHES = 95.0
# Of the tests of --quick, which leave out kernels, slow ones and most of the server's.
QUICK_BRANCHES = 94.0

# Everything that reads what nobody vouches for.
PARSERS = ("base/json", "load/", "text/", "cli/simulate_trace", "cli/batch_body", "dev/manifest")
# Chat templates have tests of their own kind; synthetic models are made, not read.
NO_PARSERS = ("text/template", "load/synthetic")


def is_parser(name):
    return name.startswith(PARSERS) and not name.startswith(NO_PARSERS)


def share(part, whole):
    return 100.0 * part / whole if whole else 100.0


def branches_of(entry):
    counts = [b["count"] for line in entry["lines"] for b in line["branches"]]
    return sum(c > 0 for c in counts), len(counts)


def list_missing(entry):
    with open(entry["file"], encoding="utf-8") as f:
        source = f.read().split("\n")
    for line in entry["lines"]:
        taken = sum(b["count"] > 0 for b in line["branches"])
        if taken < len(line["branches"]):
            number = line["line_number"]
            print(f"    {number}: {taken}/{len(line['branches'])}  {source[number - 1].strip()}")


def main():
    quick = "--quick" in sys.argv
    floor_branches = QUICK_BRANCHES if quick else BRANCHES
    with open(sys.argv[1], encoding="utf-8") as f:
        files = json.load(f)["files"]
    lines = [line for entry in files for line in entry["lines"] if not line.get("gcovr/noncode")]
    reached = sum(line["count"] > 0 for line in lines)
    taken = total = 0
    for entry in sorted(files, key=lambda e: e["file"]):
        name = entry["file"].removeprefix("runtime/")
        if is_parser(name):
            part, whole = branches_of(entry)
            taken, total = taken + part, total + whole
            if whole and not quick:
                print(f"  {name}: {part} of {whole} branches, {share(part, whole):.1f} %")
            if "--list" in sys.argv:
                list_missing(entry)
    print(f"coverage: lines of runtime/ {share(reached, len(lines)):.1f} % "
          f"({reached} of {len(lines)}, floor {LINES:.0f} %), branches of the parsers "
          f"{share(taken, total):.1f} % ({taken} of {total}, floor {floor_branches:.0f} %)")
    good = share(reached, len(lines)) >= LINES and share(taken, total) >= floor_branches
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
