"""Blocks of quantized weights: what the gguf package makes of bytes, and of numbers.

    blocks.py [--out tests/golden/blocks]

Writes cases.txt, one case a line, numbers as hexadecimal of their little-endian bytes:

    dequantize SCHEME BLOCKS FLOATS    FLOATS (f32) are the elements of BLOCKS
    quantize SCHEME FLOATS BLOCKS      BLOCKS are what FLOATS become (types the package can make)

Needs gguf and numpy. The seed is fixed.
"""

import argparse
import pathlib

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

# Offsets of the f16 scales in a block.
HALVES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "MXFP4": [],
}
MADE = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"]
HEAD = "# Made by tools/golden/blocks.py with the gguf package; see there.\n"


def blocks_of(rng, name, n):
    """n random valid blocks: every bit pattern but scales that are no number."""
    elements, size = GGML_QUANT_SIZES[T[name]]
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if name == "MXFP4":
        raw[:, 0] = rng.integers(0, 252, n)
    for at in HALVES[name]:
        scale = (rng.standard_normal(n) * 10.0 ** rng.integers(-4, 3, n)).astype(np.float16)
        scale[0] = np.float16(3e-7)  # a subnormal
        raw[:, at:at + 2] = scale.view(np.uint8).reshape(n, 2)
    return raw, elements


def numbers(rng, n):
    """Rows of 32: zeros, one sign, outliers, ties of quantization, tiny and large ones."""
    rows = [rng.standard_normal(32) * 10.0 ** e for e in (-6, -2, 0, 0, 0, 2, 4)]
    rows += [np.zeros(32), np.abs(rng.standard_normal(32)), -np.abs(rng.standard_normal(32)) - 3]
    rows += [np.arange(-16, 16) / 2.0, np.arange(32) - 8.0, np.full(32, 0.25)]
    rows += [np.where(np.arange(32) == k, 50, rng.standard_normal(32)) for k in (0, 15, 16, 31)]
    assert len(rows) <= n
    rows += [rng.standard_normal(32) for _ in range(n - len(rows))]
    return np.stack(rows).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/golden/blocks")
    out = parser.parse_args().out
    rng = np.random.default_rng(20260701)
    lines = [HEAD]
    for name in HALVES:
        raw, elements = blocks_of(rng, name, 12 if GGML_QUANT_SIZES[T[name]][0] == 32 else 3)
        values = dequantize(raw, T[name]).astype("<f4")
        assert values.shape == (len(raw), elements) and np.isfinite(values).all()
        lines.append(f"dequantize {name.lower()} {raw.tobytes().hex()} {values.tobytes().hex()}\n")
    x = numbers(rng, 24)
    for name in MADE:
        made = quantize(x, T[name])
        lines.append(f"quantize {name.lower()} {x.astype('<f4').tobytes().hex()} "
                     f"{made.tobytes().hex()}\n")
    out.mkdir(parents=True, exist_ok=True)
    (out / "cases.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
