#!/usr/bin/env python3
"""long.py PAGODA MODEL DEVICE: a long answer, of several devices alike.

Past 256 keys a step of few rows is split over the keys, and a driver's graphs have a place of their
own for such steps. The kernels are those of ocl:0, so the texts are the same.
"""
import subprocess
import sys


def answer(pagoda, model, device):
    run = subprocess.run(
        [pagoda, "run", model, "--device", device, "-p", "Once upon a time", "--temperature", "0",
         "-n", "360", "--ignore-eos"], capture_output=True, timeout=600, check=False)
    if run.returncode != 0:
        sys.exit(f"{device}: {run.stderr.decode()}")
    return run.stdout


def main():
    pagoda, model, device = sys.argv[1:]
    expected, got = answer(pagoda, model, "ocl:0"), answer(pagoda, model, device)
    if len(expected) < 500 or got != expected:
        sys.exit(f"ocl:0 says:\n{expected.decode()}\n{device} says:\n{got.decode()}")
    print(f"{len(got)} bytes, the same")


main()
