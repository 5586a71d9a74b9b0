#!/usr/bin/env python3
"""Tests the conformance tool: the good plugin passes, and spoilt in one place it is found out.

    mutants.py TOOL SOURCE_DIR REF_LIBRARY [--cc CC] [--only NAME]

Each mutant is the good plugin with one text replaced in one of its files. Only that file is
compiled again. Of levels 0 and 1 all checks run, and the first that fails must be the one that is
named; of the levels above the named one alone, to keep the run short. The good plugin runs all.
Exits 1 when a mutant passes, is found by another check, or its text is not in the file once.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mutant_list import MUTANTS

FILES = ("good.c", "queue.c", "ops.c", "image.c")
QUICK = ["--level", "3", "--stop", "--loops", "200", "--soak", "1s", "--threads", "1",
         "--limit", "60s"]
LOW = ("loads.", "memory.", "queue.")


class Build:
    """Objects of the good plugin, and libraries with one of them replaced."""

    def __init__(self, options, room):
        self.cc = options.cc
        self.root = Path(options.source)
        self.good = self.root / "tests/conform/good"
        self.ref = options.ref
        self.room = room
        for name in FILES:
            self.compile(self.good / name, room / name.replace(".c", ".o"))

    def compile(self, source, target):
        subprocess.run([self.cc, "-std=c11", "-O1", "-fPIC", "-fvisibility=hidden", "-w",
                        "-D_GNU_SOURCE", "-I", self.root / "include", "-I", self.root / "kernels",
                        "-I", self.good, "-c", source, "-o", target], check=True)

    def plugin(self, mutant):
        """Path of the library; its manifest lies beside it."""
        folder = self.room / (mutant.name if mutant else "good")
        folder.mkdir()
        objects = [self.room / name.replace(".c", ".o") for name in FILES]
        texts = {"libpgd-good.json": (self.good / "libpgd-good.json").read_text()}
        if mutant:
            text = (self.good / mutant.file).read_text()
            if text.count(mutant.old) != 1:
                raise ValueError(f"{mutant.file} has {text.count(mutant.old)} times: {mutant.old}")
            texts[mutant.file] = text.replace(mutant.old, mutant.new)
        for name, text in texts.items():
            (folder / name).write_text(text)
        if mutant and mutant.file in FILES:
            self.compile(folder / mutant.file, folder / "mutant.o")
            objects[FILES.index(mutant.file)] = folder / "mutant.o"
        library = folder / "libpgd-good.so"
        subprocess.run([self.cc, "-shared", "-o", library, *objects, self.ref,
                        *(mutant.link if mutant else ()), "-lm"], check=True)
        return library


def first_failure(tool, library, check):
    """(check, sentence) of the first failure, or None when everything passed."""
    few = [] if check is None or check.startswith(LOW) else ["--only", check]
    done = subprocess.run([tool, library, *QUICK, *few, *([] if check else ["--cases", "3"])],
                          capture_output=True, text=True, timeout=300)
    lines = done.stdout.split("\n")
    for number, line in enumerate(lines):
        words = line.split()
        if len(words) > 2 and words[2] == "FAILED":
            return words[1], lines[number + 1].strip()
    if done.returncode != 0:
        return "?", done.stdout[-300:] + done.stderr[-300:]
    return None


def judge(tool, build, mutant):
    """None when the tool is right about it, else what is wrong."""
    try:
        found = first_failure(tool, build.plugin(mutant), mutant and mutant.check)
    except (ValueError, subprocess.SubprocessError) as error:
        return str(error)
    if mutant is None:
        return None if found is None else f"the good plugin fails {found[0]}: {found[1]}"
    if found is None:
        return f"passes; {mutant.check} should find it"
    print(f"{mutant.name}: {found[0]}: {found[1][:150]}", flush=True)
    if found[0] != mutant.check:
        return f"found by {found[0]} instead of {mutant.check}: {found[1]}"
    shutil.rmtree(build.room / mutant.name)
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("source")
    parser.add_argument("ref")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--only")
    options = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as room:
        build = Build(options, Path(room))
        chosen = [m for m in MUTANTS if options.only in (None, m.name)]
        for mutant in [None] * (options.only is None) + chosen:
            fault = judge(options.tool, build, mutant)
            if fault:
                wrong.append(f"FAILED {mutant.name if mutant else 'good'}: {fault}")
                print(wrong[-1], flush=True)
    spent = os.times()
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} mutants found by the right check, "
          f"{spent.children_user + spent.children_system:.0f} s of processor time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
