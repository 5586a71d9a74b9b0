"""What run.sh measured, as tables: tokens a second, and shares of the card's own limits.

  table.py FOLDER
"""
import json
import os
import sys


def read(folder, name):
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, json.JSONDecodeError):
        return None


def share(value, limit):
    return f"{100 * value / limit:.0f} %" if limit and value else "-"


def row(name, bench, limits):
    samples = bench["samples"]
    if "prefill" in name:
        rate = max(s["prefill"]["tokens_per_s"] for s in samples)
        work = max(s["prefill"]["ops_per_s"] for s in samples)
        return rate, share(work, limits.get("bf16_ops_per_s")), "of products"
    best = max(samples, key=lambda s: s["decode"]["tokens_per_s"])["decode"]
    return best["tokens_per_s"], share(best["bytes_per_s"], limits.get("copy_bytes_per_s")), \
        "of copies"


def main(folder):
    limits = read(folder, "limits.json") or {}
    copy, ops = limits.get("copy_bytes_per_s"), limits.get("bf16_ops_per_s")
    print(f"Limits in this run: copies {copy / 1e9:.0f} GB/s" if copy else "Limits: no copies",
          f"and bf16 products {ops / 1e12:.0f} TFLOP/s." if ops else "and no products.")
    peers = read(folder, "torch.json") or {}
    print("\n| case | deterministic, tokens/s | share | otherwise, tokens/s | share | PyTorch eager"
          " | compiled |\n|---|---|---|---|---|---|---|")
    cases = sorted(f[:-len("-on.json")] for f in os.listdir(folder) if f.endswith("-on.json"))
    for case in cases:
        cells = [case]
        for mode in ("on", "off"):
            bench = read(folder, f"{case}-{mode}.json")
            if bench is None:
                cells += ["-", "-"]
                continue
            rate, part, of_what = row(case, bench, limits)
            cells += [f"{rate:,.1f}", f"{part} {of_what}"]
        peer = peers.get(case, {})
        cells += [str(peer.get("eager", "-")), str(peer.get("compiled", "-"))]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
