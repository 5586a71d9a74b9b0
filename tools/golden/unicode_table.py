#!/usr/bin/env python3
"""Makes runtime/text/unicode_table.c: classes of code points as the tokenizers package has them.

The package takes its Unicode data from several libraries of different age (its split patterns know
Unicode 16, its normal forms Unicode 9), so each class is asked of the part that uses it, one code
point at a time. Takes about a minute.
"""

import argparse
import os

from tokenizers import Regex, normalizers, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "runtime", "text", "unicode_table.c")
SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
IOTA = "\u0345"  # combining class 240, the highest

HEAD = """// Made by tools/golden/unicode_table.py with tokenizers {version}; do not edit.
//
// Classes of code points: each entry is (first code point << 8) | bits, and holds up to the next
// entry. Bits are those of parts.h.
#include "text/parts.h"

// clang-format off
const uint32_t pgd_text_class_table[] = {{
"""
TAIL = """}};
// clang-format on

const size_t pgd_text_class_table_n = {n};
"""


def removed_by(pre_tokenizer):
    """The code points that a splitter with behavior "removed" takes away."""
    out = set()
    for i in range(0, len(SCALARS), 512):
        chunk = SCALARS[i : i + 512]
        kept = "".join(p for p, _ in pre_tokenizer.pre_tokenize_str("".join(map(chr, chunk))))
        out |= set(chunk) - set(map(ord, kept))
    return out


def matched_by(pattern):
    return removed_by(pre_tokenizers.Split(Regex(pattern), "removed"))


def classes():
    """Bits of parts.h -> code points."""
    spaces = matched_by(r"\s")
    words = pre_tokenizers.Whitespace()
    digits = pre_tokenizers.Digits(individual_digits=True)
    accents = normalizers.StripAccents()
    nfd = normalizers.NFD()
    return {
        1: matched_by(r"\p{L}"),
        2: matched_by(r"\p{N}"),
        4: spaces,
        8: {c for c in SCALARS if len(words.pre_tokenize_str(f"a{chr(c)}")) == 1} - spaces,
        16: removed_by(pre_tokenizers.Punctuation("removed")),
        32: {c for c in SCALARS if accents.normalize_str(chr(c)) == ""},
        64: {c for c in SCALARS if nfd.normalize_str(IOTA + chr(c))[:1] != IOTA} | {ord(IOTA)},
        128: {c for c in SCALARS if len(digits.pre_tokenize_str(f"a{chr(c)}a")) == 3},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=OUT, help="file to write")
    args = parser.parse_args()
    import tokenizers

    bits = [0] * 0x110000
    for bit, points in classes().items():
        for c in points:
            bits[c] |= bit
    bits[0xD800:0xE000] = [0] * 0x800
    entries = [(c, b) for c, b in enumerate(bits) if c == 0 or b != bits[c - 1]]
    words = [f"0x{c << 8 | b:08X}," for c, b in entries]
    lines = ["    " + " ".join(words[i : i + 8]) for i in range(0, len(words), 8)]
    with open(args.out, "w") as f:
        f.write(HEAD.format(version=tokenizers.__version__))
        f.write("\n".join(lines) + "\n")
        f.write(TAIL.format(n=len(words)))
    print(f"{args.out}: {len(words)} entries")


if __name__ == "__main__":
    main()
