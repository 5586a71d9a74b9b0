"""Copies a model folder with its bf16 weights widened to f32 (exact).

    widen.py FROM TO
"""

import json
import pathlib
import shutil
import struct
import sys


def widen(source, target):
    """Rewrites one safetensors file; every tensor must be BF16."""
    data = source.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    body = data[8 + n :]
    out, pieces, at = {}, [], 0
    for name, tensor in sorted(header.items(), key=lambda kv: kv[1].get("data_offsets", [0])):
        if name == "__metadata__":
            continue
        if tensor["dtype"] != "BF16":
            raise ValueError(f"{name} is {tensor['dtype']}, not BF16")
        begin, end = tensor["data_offsets"]
        halves = struct.unpack(f"<{(end - begin) // 2}H", body[begin:end])
        piece = b"".join(struct.pack("<I", h << 16) for h in halves)
        place = [at, at + len(piece)]
        out[name] = {"dtype": "F32", "shape": tensor["shape"], "data_offsets": place}
        pieces.append(piece)
        at += len(piece)
    text = json.dumps(out).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))


def main(argv):
    source, target = pathlib.Path(argv[1]), pathlib.Path(argv[2])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix == ".safetensors":
            widen(path, target / path.name)
        else:
            shutil.copy(path, target / path.name)


if __name__ == "__main__":
    main(sys.argv)
