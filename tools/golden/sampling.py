#!/usr/bin/env python3
"""Distributions after every step of sampling, by the formulas of vLLM's V1 sampler.

    sampling.py [OUT.txt]       (default: tests/golden/sampling/cases.txt)

The order of the steps is vLLM's: log probabilities of the raw logits; allowed tokens (mask); logit
bias; repetition, frequency and presence penalties; temperature; min_p; top_k; top_p over the sorted
probabilities, in which the tokens of the ascending cumulative mass <= 1 - top_p go and the best
stays. Everything in float64 with numpy, sorting and summing in the plain way.

One case is a line of each kind, in this order; floats are written by float.hex:

    case NAME V temperature top_k top_p min_p repetition presence frequency greedy
    logits V floats
    state V integers: bit 30 = in the prompt, bits 0 to 29 = times in the output
    mask V of 0 and 1
    bias N then N pairs of an id and a float
    logprobs V floats: of the raw logits
    probs V floats: after every step (one 1 for a greedy case)
"""
import pathlib
import sys

import numpy as np

V = 37
IN_PROMPT = 1 << 30


def log_softmax(x):
    m = np.max(x)
    if not np.isfinite(m):
        m = 0.0
    e = np.exp(x - m)
    return x - m - np.log(np.sum(e))


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def penalized(logits, prompt, output, repetition, presence, frequency):
    seen = (prompt > 0) | (output > 0)
    scale = np.where(seen, repetition, 1.0)
    logits = np.where(logits > 0, logits / scale, logits * scale)
    logits = logits - frequency * output
    return logits - presence * (output > 0)


def keep_min_p(logits, min_p):
    p = softmax(logits)
    return np.where(p < min_p * np.max(p), -np.inf, logits)


def keep_top_k(logits, k):
    border = np.sort(logits)[max(len(logits) - k, 0)]
    return np.where(logits < border, -np.inf, logits)


def keep_top_p(logits, top_p):
    order = np.argsort(logits, kind="stable")
    mass = np.cumsum(softmax(logits)[order])
    gone = mass <= 1 - top_p
    gone[-1] = False
    out = logits.copy()
    out[order[gone]] = -np.inf
    return out


def distribution(c):
    x = np.where(c["mask"], c["logits"], -np.inf)
    for token, add in c["bias"]:
        x[token] += add
    x = penalized(x, c["prompt"], c["output"], c["repetition"], c["presence"], c["frequency"])
    if c["greedy"]:
        p = np.zeros(V)
        p[int(np.argmax(x))] = 1
        return p
    x = x / c["temperature"]
    if c["min_p"] > 0:
        x = keep_min_p(x, c["min_p"])
    if c["top_k"] > 0:
        x = keep_top_k(x, c["top_k"])
    if 0 < c["top_p"] < 1:
        x = keep_top_p(x, c["top_p"])
    return softmax(x)


CASES = [
    ("plain", {}),
    ("cold", {"temperature": 0.5}),
    ("repetition", {"repetition": 1.25, "counts": True}),
    ("rewarded", {"repetition": 0.75, "counts": True}),
    ("presence", {"presence": 1.5, "counts": True}),
    ("frequency", {"frequency": 0.375, "counts": True}),
    ("penalties", {"repetition": 1.5, "presence": -0.5, "frequency": 0.25, "counts": True}),
    ("mask", {"masked": True}),
    ("bias", {"biased": True}),
    ("min_p", {"min_p": 0.09375}),
    ("top_k", {"top_k": 7}),
    ("top_p", {"top_p": 0.8125}),
    ("filters", {"temperature": 1.5, "min_p": 0.03125, "top_k": 15, "top_p": 0.875}),
    ("everything", {"temperature": 0.75, "min_p": 0.015625, "top_k": 12, "top_p": 0.9375,
                    "repetition": 1.125, "presence": 0.25, "frequency": 0.125, "counts": True,
                    "masked": True, "biased": True}),
    ("greedy", {"greedy": 1, "repetition": 2.0, "counts": True, "masked": True, "biased": True}),
]


def make(number, name, given):
    rng = np.random.default_rng(number + 1)
    c = {"name": name, "temperature": 1.0, "top_k": 0, "top_p": 0.0, "min_p": 0.0,
         "repetition": 1.0, "presence": 0.0, "frequency": 0.0, "greedy": 0}
    c.update(given)
    c["logits"] = np.round(rng.normal(0, 2, V) * 64) / 64
    counted = bool(given.get("counts"))
    c["prompt"] = (rng.integers(0, 3, V) == 0) * int(counted)
    c["output"] = rng.integers(0, 4, V) * (rng.integers(0, 2, V) == 0) * int(counted)
    c["mask"] = rng.integers(0, 4, V) > 0 if given.get("masked") else np.ones(V, bool)
    c["bias"] = []
    if given.get("biased"):
        ids = rng.permutation(V)[:5]
        adds = [2.5, -1.75, 4.0, float("-inf"), -100.0]
        c["bias"] = [(int(i), a) for i, a in zip(ids, adds)] + [(int(ids[0]), -1.25)]
    return c


def floats(values):
    return " ".join(float(v).hex() if np.isfinite(v) else "-inf" for v in values)


def write(out, c):
    state = c["prompt"] * IN_PROMPT + c["output"]
    settings = [c[k] for k in ("temperature", "top_k", "top_p", "min_p", "repetition", "presence",
                               "frequency", "greedy")]
    print("case", c["name"], V, *settings, file=out)
    print("logits", floats(c["logits"]), file=out)
    print("state", *state, file=out)
    print("mask", *[int(m) for m in c["mask"]], file=out)
    pairs = " ".join(f"{i} {a if a == float('-inf') else float(a).hex()}" for i, a in c["bias"])
    print("bias", len(c["bias"]), pairs, file=out)
    print("logprobs", floats(log_softmax(c["logits"])), file=out)
    print("probs", floats(distribution(c)), file=out)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    path = sys.argv[1] if len(sys.argv) > 1 else root / "tests/golden/sampling/cases.txt"
    with open(path, "w", encoding="ascii") as out:
        for number, (name, given) in enumerate(CASES):
            write(out, make(number, name, given))


if __name__ == "__main__":
    main()
