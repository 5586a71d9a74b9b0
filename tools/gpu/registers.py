"""Registers and spills of the tensor-core kernels, as nvcc's assembler reports them.

registers.py [--nvcc NVCC] [--check] [--log ARCH=FILE]... [ARCH...]

Prints the table of kernels/cuda/README.md for the chips named (sm_80 to sm_120 if none). --check:
fails where a kernel spills more than kernels/cuda/spills.txt allows, or is not in the report.
--log takes what `nvcc -Xptxas -v` wrote in place of running it. Exit status 77: there is no nvcc.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
CHIPS = ["sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"]
FLAGS = ["-fmad=false", "-O3", "--cubin", "-Xptxas", "-v", "-I", str(KERNELS), "-o", "/dev/null"]


def report(nvcc, chip):
    command = [nvcc, f"-arch={chip}", *FLAGS, str(KERNELS / "cuda" / "device.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stderr


def read(text):
    """{kernel: (registers, bytes of spill stores, of spill loads)}"""
    found = {}
    name = spills = None
    for line in text.splitlines():
        if match := re.search(r"entry function 'pgd_cuda_(\w+)'", line):
            name, spills = match[1], None
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = int(match[1]), int(match[2])
        elif (match := re.search(r"Used (\d+) registers", line)) and name and spills:
            found[name] = (int(match[1]), *spills)
            name = None
    return found


def allowed():
    """{(chip, kernel): (stores, loads)}"""
    lines = (KERNELS / "cuda" / "spills.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {(chip, kernel): (int(stores), int(loads)) for chip, kernel, stores, loads in rows}


def listed():
    """The kernels there are, from the list that the plugin is built with."""
    command = ["cc", "-E", "-P", "-I", str(KERNELS), "-"]
    text = '#include "cuda/list.inc"\n#define ROW(name, ...) @name\nPGD_CUDA_KERNELS(ROW)\n'
    made = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return re.findall(r"@\s*(\w+)", made)


def complaints(reports, kernels):
    limits = allowed()
    for chip, found in reports.items():
        for kernel in kernels:
            if kernel not in found:
                yield f"{chip}: {kernel} is not in the report"
                continue
            _, stores, loads = found[kernel]
            most = limits.get((chip, kernel), (0, 0))
            if stores > most[0] or loads > most[1]:
                yield (f"{chip}: {kernel} spills {stores} bytes and reads {loads} again; "
                       f"allowed are {most[0]} and {most[1]}")


def table(reports, kernels):
    def cell(values):
        if values is None:
            return "?"
        registers, stores, loads = values
        return f"{registers} ({stores}, {loads})" if stores + loads else str(registers)
    yield f"| kernel | {' | '.join(reports)} |"
    yield "|---" * (len(reports) + 1) + "|"
    for kernel in sorted(kernels):
        cells = [cell(found.get(kernel)) for found in reports.values()]
        yield f"| {kernel} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", default="")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--log", action="append", default=[])
    parser.add_argument("chips", nargs="*")
    args = parser.parse_args()
    logs = dict(item.split("=", 1) for item in args.log)
    nvcc = args.nvcc or shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    chips = args.chips or ([] if logs else CHIPS)
    if chips and not nvcc:
        print("skipped: there is no nvcc")
        return 77
    reports = {chip: read(pathlib.Path(path).read_text()) for chip, path in logs.items()}
    reports.update({chip: read(report(nvcc, chip)) for chip in chips})
    kernels = listed()
    print("\n".join(table(reports, kernels)))
    wrong = list(complaints(reports, kernels)) if args.check else []
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
