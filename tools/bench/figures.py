#!/usr/bin/env python3
"""Measures the figures of docs/performance.md, "Against the goals", and prints them as its table.

    tools/bench/figures.py [--only WORD ...] [--repeat N] BUILD_DIR

BUILD_DIR is a tree built with tests (pagoda, pagoda-conform, step_bench, attn_bench) and optimized.
Takes about eight minutes and 6 GB of memory on two quiet cores; others on the machine spoil it:
every row says how many cores they used meanwhile. --only runs the rows whose names have one of the
words. Rates and limits are of the same process, limits before and after each sample, so shares can
be compared where absolute figures cannot. Needs Python 3.9, nothing else.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

MODEL = "synthetic:llama-3.2-1b"
SMALL = "synthetic:qwen2.5-0.5b"
DEVICE = ["--device", "cpu"]
NANO = pathlib.Path(__file__).resolve().parents[2] / "models" / "nano"
ROWS = []


def row(name):
    """Registers a function that yields (goal, figure, detail) as a row."""
    def keep(function):
        ROWS.append((name, function))
        return function
    return keep


class Bench:
    def __init__(self, build, repeat):
        self.build = build
        self.repeat = repeat
        self.pagoda = str(build / "bin" / "pagoda")
        os.environ["PAGODA_PLUGIN_PATH"] = str(build / "lib" / "pagoda")

    def text(self, *command):
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(map(str, command))}: {done.stderr.decode().strip()}")
        return done.stdout.decode()

    def latency(self, model, *flags):
        out = self.text(self.pagoda, "bench", "latency", model, *DEVICE, "--json", "--repeat",
                        self.repeat, "--warmup", 1, "--enable-prefix-caching", "false", *flags)
        return json.loads(out)["samples"]


def others(samples):
    return f"others used {statistics.median(s['foreign_cores'] for s in samples):.2f} cores"


def share(samples, phase, limit):
    """Median of the shares in percent, with their range."""
    values = sorted(100 * s[phase][f"share_{limit}"] for s in samples)
    return f"{statistics.median(values):.0f} % ({values[0]:.0f} to {values[-1]:.0f})"


def rate(samples, phase):
    return statistics.median(s[phase]["tokens_per_s"] for s in samples)


def limits(samples):
    def of(key):
        return statistics.median((s["limits_before"][key] + s["limits_after"][key]) / 2
                                 for s in samples if key in s["limits_before"])
    return f"reads {of('read') / 1e9:.0f} GB/s, bf16 {of('dot_bf16') / 1e9:.0f} G/s"


@row("decode b1 bf16")
def decode_b1(b):
    s = b.latency(MODEL, "--input-len", 16, "--context", 16, "--output-len", 24)
    detail = f"{rate(s, 'decode'):.1f} tokens/s, {limits(s)}"
    return "90 % of reads", share(s, "decode", "read"), detail, s


def at_context(context):
    def run(b):
        s = b.latency(MODEL, "--input-len", 32, "--context", context, "--output-len", 24)
        detail = f"{rate(s, 'decode'):.1f} tokens/s, {limits(s)}"
        return "75 % of reads" if context == 4096 else "", share(s, "decode", "read"), detail, s
    return run


for tokens in (4096, 8192):
    row(f"decode b1 at context {tokens}")(at_context(tokens))


@row("decode b8 bf16")
def decode_b8(b):
    """b1 and b8 by turns: the machine's state moves between two runs."""
    flags = ("--input-len", 16, "--context", 16, "--output-len", 24)
    ratios = []
    for _ in range(2):
        one = b.latency(MODEL, *flags)
        s = b.latency(MODEL, *flags, "--batch-size", 8)
        ratios.append(rate(s, "decode") / rate(one, "decode"))
    figure = f"{statistics.mean(ratios):.1f} times ({min(ratios):.1f}, {max(ratios):.1f})"
    return "6.5 times b1", figure, f"b8 {share(s, 'decode', 'read')} of reads, {limits(s)}", s


@row("decode b32 bf16")
def decode_b32(b):
    s = b.latency(MODEL, "--input-len", 16, "--context", 16, "--output-len", 24, "--batch-size", 32)
    return "60 % of the bf16 dot peak", share(s, "decode", "dot"), limits(s), s


def prefill(model, n, goal):
    def run(b):
        s = b.latency(model, "--input-len", n, "--output-len", 2)
        return goal, share(s, "prefill", "dot"), f"{rate(s, 'prefill'):.0f} tokens/s, {limits(s)}", s
    return run


for length in (512, 2048):
    row(f"prefill {length} bf16")(prefill(MODEL, length, "70 % of the bf16 dot peak"))
row("prefill 512 f32")(prefill(MODEL + ",f32", 512, "75 % of the f32 peak"))


@row("host cost of a step")
def host_cost(b):
    out = b.text(b.build / "bin/tests/step_bench", "null", NANO)
    figures = re.findall(r"^ *(\d+) sequences: ([0-9.]+) us", out, re.M)
    return ("1, 32, 256 sequences: 10, 20, 100 us", ", ".join(f for _, f in figures) + " us",
            "", None)


@row("beside two busy processes")
def beside(b):
    tool = pathlib.Path(__file__).with_name("beside.py")
    out = b.text(sys.executable, tool, "--rounds", 1, b.pagoda, SMALL, *DEVICE,
                 "--input-len", 128, "--output-len", 32)
    return "40 % of own speed", ", ".join(re.findall(r"([0-9.]+ %)", out)), "decode, prefill", None


@row("start of nano")
def start_nano(b):
    d = json.loads(b.text(b.pagoda, "bench", "startup", NANO, *DEVICE, "--repeat", 15,
                          "--json"))
    first = sorted(s["first_token_ms"] for s in d["samples"])
    return ("under 60 ms", f"p50 {statistics.median(first):.0f} ms, "
            f"most {first[-1]:.0f}", "", None)


@row("start of 1B from packed weights")
def start_packed(b):
    with tempfile.TemporaryDirectory() as folder:
        d = json.loads(b.text(b.pagoda, "bench", "startup", MODEL, *DEVICE, "--repeat", 5,
                              "--cache", folder, "--json"))
    best = sorted(d["samples"], key=lambda s: s["first_token_ms"])[len(d["samples"]) // 2]
    return ("150 ms and one read", f"{best['first_token_ms']:.0f} ms",
            f"reading the weights once {best['read_once_ms']:.0f} ms", None)


@row("libraries stripped")
def size(b):
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in ("lib/libpagoda.so", "lib/pagoda/libpgd-cpu.so"):
            copy = pathlib.Path(folder) / "library"
            shutil.copy(b.build / path, copy)
            b.text("strip", copy)
            total += copy.stat().st_size
    return "3 MB", f"{total / 1e6:.2f} MB", "", None


@row("resident memory")
def resident(b):
    """A prompt of 2,048 tokens: everything beside weights and the cache that it fills."""
    n = 2048
    d = json.loads(b.text(b.pagoda, "plan", MODEL, *DEVICE, "--json"))
    command = [b.pagoda, "bench", "startup", MODEL, *DEVICE, "--child=1", "--input-len", str(n),
               "--weight-cache", "off"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    if most == before * 1024:
        return "100 MB", "not measured", "an earlier row took more; --only resident", None
    rest = most - d["memory"]["weights"] - (n + 1) * 32768
    return "weights, KV and 100 MB", f"{rest / 1e6:.0f} MB beside them", "", None


@row("attention alone")
def attention(b):
    out = b.text(b.build / "bin/tests/attn_bench", "--plugin-dir", b.build / "lib/pagoda",
                 "1x1@4096", "1x1@8192", "32x1@512", "1x512@512", "1x512@2048")
    return "", "", "<br>".join(" ".join(line.split()) for line in out.splitlines()), None


@row("pagoda-conform level 4")
def level4(b):
    out = b.text(b.build / "bin/pagoda-conform", b.build / "lib/pagoda/libpgd-cpu.so", "--level", 4,
                 "--only", "fast.*")
    lines = re.findall(r"^4 +(fast\.(?:decode|prefill)\S*) +(\S+) +\d+ +(.*)$", out, re.M)
    return ("60, 50, 40 %", ", ".join(f"{name} {state}" for name, state, _ in lines),
            "<br>".join(note for _, _, note in lines), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("build", type=pathlib.Path)
    known = parser.parse_args()
    b = Bench(known.build.resolve(), known.repeat)
    # Memory first: the most that any child took is kept by the system.
    rows = sorted(ROWS, key=lambda r: r[0] != "resident memory")
    print("| figure | goal | here | alongside |\n|---|---|---|---|")
    for name, function in rows:
        if known.only and not any(word in name for word in known.only):
            continue
        goal, figure, detail, samples = function(b)
        note = "; ".join(t for t in (detail, others(samples) if samples else "") if t)
        print(f"| {name} | {goal} | {figure} | {note} |", flush=True)


if __name__ == "__main__":
    main()
