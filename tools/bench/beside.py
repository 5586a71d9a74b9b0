#!/usr/bin/env python3
"""How much of its own speed `pagoda bench latency` keeps beside busy processes.

    tools/bench/beside.py [--busy N] [--rounds N] PAGODA MODEL [flags of bench latency ...]

Runs the benchmark alone and beside N (2) processes that do nothing but compute, in turns, and
prints the medians of decode and prefill rates and what is left of them. The processes are started
and ended here. Needs Python 3.9, nothing else.
"""
import argparse
import json
import statistics
import subprocess
import sys

PHASES = ("decode", "prefill")


def run(command):
    """One run of the benchmark: its samples."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.decode().strip())
    return json.loads(done.stdout)["samples"]


def beside(command, n):
    """The same while n loops are running."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(n)]
    try:
        return run(command)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("pagoda")
    parser.add_argument("model")
    known, flags = parser.parse_known_args()
    command = [known.pagoda, "bench", "latency", known.model, "--json", *flags]
    alone, busy = [], []
    for _ in range(known.rounds):
        alone += run(command)
        busy += beside(command, known.busy)
    for name in PHASES:
        quiet = statistics.median(s[name]["tokens_per_s"] for s in alone)
        loaded = statistics.median(s[name]["tokens_per_s"] for s in busy)
        print(f"{name:8} alone {quiet:9.1f} tokens/s, beside {known.busy} busy processes "
              f"{loaded:9.1f} = {100 * loaded / quiet:5.1f} %")


if __name__ == "__main__":
    main()
