#!/usr/bin/env python3
"""Where AMD's matrix instructions have their numbers, as AMD's own calculator tells it.

    tools/gpu/matrix_layouts.py CALCULATOR >kernels/matrix/layouts.txt

CALCULATOR is matrix_calculator.py of https://github.com/ROCm/amd_matrix_instruction_calculator (it
needs the package tabulate). A line of the output is a row of a matrix: unit, matrix, row, then for
each column lane:element of that number, two of them where two lanes have it. An element is a 16-bit
half of a and b, a float of d.
"""
import re
import subprocess
import sys

UNITS = (("mfma", "cdna3", "v_mfma_f32_16x16x16_bf16"),
         ("wmma", "rdna3", "v_wmma_f32_16x16x16_bf16"),
         ("wmma12", "rdna4", "v_wmma_f32_16x16x16_bf16"))
PLACE = re.compile(r"v(\d+)\{(\d+)\}(?:\.\[(\d+):\d+\])?")


def place(register, lane, high_bit):
    if not high_bit:
        return f"{lane}:{register}"
    return f"{lane}:{2 * int(register) + (high_bit == '31')}"


def rows_of(calculator, arch, instruction, matrix):
    said = subprocess.run([sys.executable, calculator, "-a", arch, "-i", instruction,
                           "--register-layout", f"--{matrix}-matrix", "-c"],
                          check=True, capture_output=True, text=True).stdout
    for line in said.splitlines():
        cells = line.split(",")
        if cells[0].isdigit():
            yield [["".join(place(*m)) for m in PLACE.findall(cell)] for cell in cells[1:]]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("# Made by tools/gpu/matrix_layouts.py from AMD's Matrix Instruction Calculator.")
    for unit, arch, instruction in UNITS:
        for matrix in "ABD":
            for number, row in enumerate(rows_of(sys.argv[1], arch, instruction, matrix)):
                places = " ".join("+".join(cell) for cell in row)
                print(f"{unit} {matrix.lower()} {number} {places}")


if __name__ == "__main__":
    main()
