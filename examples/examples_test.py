#!/usr/bin/env python3
"""examples_test.py NAME PROGRAM [MODEL DEVICE]: runs an example and looks at what it says."""
import re
import subprocess
import sys


def run(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{program} {args}: {done.returncode}: {done.stderr}")
    return done.stdout, done.stderr


def check_batch(out, err):
    answers = re.findall(r"(\d+) tokens, (\w+), log probability (-?\d+\.\d+)", out)
    assert len(answers) == 6, out
    assert all(1 <= int(n) <= 24 and float(p) < 0 for n, _, p in answers), out
    assert err.split("\n")[:3] == ["1 of 3", "2 of 3", "3 of 3"], err
    texts = re.findall(r"\[(.*?)\]\n", out, re.S)
    assert texts[0] != texts[1], "two seeds, one text"


def check_streaming(out, _):
    assert "Paris" in out and out.endswith("\n"), out


def check_async(out, _):
    reasons = re.findall(r"^(\w+): (\d+) tokens:", out, re.M)
    assert reasons[:3] == [("length", "24")] * 3, out
    assert reasons[3][0] == "abort" and int(reasons[3][1]) < 100, out


def check_refusal(program):
    done = subprocess.run([program, "/no/such/model"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "/no/such/model" in done.stderr, done


def main():
    name, program, *args = sys.argv[1:]
    {"batch": check_batch, "streaming": check_streaming, "async": check_async}[name](
        *run(program, *args))
    check_refusal(program)


if __name__ == "__main__":
    main()
