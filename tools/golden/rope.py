#!/usr/bin/env python3
"""Makes tests/golden/rope/rope.json: rope frequencies as transformers computes them.

Each case is a config.json (as a JSON object), the length that the frequencies are for, and what
transformers' own functions answer: inv_freq (float32, one per rotated pair) and the factor of cos
and sin. Nothing here is computed by the runtime under test.
"""
import argparse
import copy
import json
import os

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "tests", "golden", "rope", "rope.json")

BASE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 4096,
}
SHORT = [1.0 + 0.03125 * i for i in range(32)]
LONG = [1.0 + 0.0625 * i * i for i in range(32)]


def scaling(kind, **more):
    return {"rope_scaling": dict(rope_type=kind, **more)}


def parameters(kind, theta, **more):
    return {"rope_parameters": dict(rope_type=kind, rope_theta=theta, **more)}


# name, what the config has beside BASE, length
CASES = [
    ("default", {}, 4096),
    ("default-theta", {"rope_theta": 1000000.0, "head_dim": 128}, 4096),
    ("default-v5", parameters("default", 500000.0), 4096),
    ("default-partial", parameters("default", 10000.0, partial_rotary_factor=0.5), 4096),
    ("linear", {"rope_theta": 10000.0, **scaling("linear", factor=4.0)}, 4096),
    ("linear-old-key", {"rope_scaling": {"type": "linear", "factor": 2.5}}, 4096),
    ("dynamic-within", scaling("dynamic", factor=2.0), 4096),
    ("dynamic-below", scaling("dynamic", factor=2.0), 100),
    ("dynamic-beyond", scaling("dynamic", factor=2.0), 10000),
    ("dynamic-beyond-4", scaling("dynamic", factor=4.0), 16384),
    ("llama3", {"rope_theta": 500000.0, "max_position_embeddings": 131072, "head_dim": 128,
                **scaling("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=8192)}, 131072),
    ("llama3-32", {"max_position_embeddings": 131072,
                   **parameters("llama3", 500000.0, factor=32.0, low_freq_factor=1.0,
                                high_freq_factor=4.0, original_max_position_embeddings=8192)},
     131072),
    ("yarn", {"max_position_embeddings": 131072, "rope_theta": 1000000.0, "head_dim": 128,
              **scaling("yarn", factor=4.0, original_max_position_embeddings=32768)}, 131072),
    ("yarn-no-truncate",
     {"max_position_embeddings": 131072,
      **parameters("yarn", 150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                   original_max_position_embeddings=4096)}, 131072),
    ("yarn-attention-factor",
     {"max_position_embeddings": 8192,
      **parameters("yarn", 10000.0, factor=2.0, attention_factor=0.75,
                   original_max_position_embeddings=4096)}, 8192),
    ("yarn-mscale",
     {"max_position_embeddings": 163840,
      **parameters("yarn", 10000.0, factor=40.0, mscale=1.0, mscale_all_dim=0.707,
                   original_max_position_embeddings=4096)}, 163840),
    ("yarn-mscale-alone",
     {"max_position_embeddings": 163840,
      **parameters("yarn", 10000.0, factor=40.0, mscale=0.5,
                   original_max_position_embeddings=4096)}, 163840),
    ("yarn-factor-null",
     {"max_position_embeddings": 16384,
      **parameters("yarn", 10000.0, factor=None, original_max_position_embeddings=4096)}, 16384),
    ("yarn-equal-bounds",
     {"max_position_embeddings": 64,
      **parameters("yarn", 10000.0, factor=4.0, beta_fast=1.0, beta_slow=1.0, truncate=False,
                   original_max_position_embeddings=16)}, 64),
    ("longrope-short",
     {"max_position_embeddings": 131072,
      **parameters("longrope", 10000.0, short_factor=SHORT, long_factor=LONG,
                   original_max_position_embeddings=4096)}, 4096),
    ("longrope-long",
     {"max_position_embeddings": 131072,
      **parameters("longrope", 10000.0, short_factor=SHORT, long_factor=LONG,
                   original_max_position_embeddings=4096)}, 4097),
    ("longrope-factor",
     {"max_position_embeddings": 131072,
      **parameters("longrope", 10000.0, short_factor=SHORT, long_factor=LONG, factor=16.0,
                   original_max_position_embeddings=4096)}, 131072),
    ("longrope-attention-factor",
     {"max_position_embeddings": 131072,
      **parameters("longrope", 10000.0, short_factor=SHORT, long_factor=LONG,
                   attention_factor=1.5, original_max_position_embeddings=4096)}, 1000),
    ("longrope-original-at-top",
     {"max_position_embeddings": 8192, "original_max_position_embeddings": 2048,
      **parameters("longrope", 10000.0, short_factor=SHORT, long_factor=LONG)}, 4096),
    ("longrope-no-stretch",
     {"max_position_embeddings": 4096,
      **parameters("longrope", 10000.0, short_factor=SHORT, long_factor=LONG,
                   original_max_position_embeddings=4096)}, 4096),
]


def answer(config, length):
    c = transformers.LlamaConfig(**copy.deepcopy(config))
    kind = c.rope_parameters["rope_type"]
    if kind == "default":
        # A partial factor is the linear type with factor 1: the default function of Llama turns
        # whole heads only.
        if "partial_rotary_factor" in c.rope_parameters:
            c.rope_parameters["factor"] = 1.0
            return ROPE_INIT_FUNCTIONS["linear"](c, "cpu")
        return LlamaRotaryEmbedding.compute_default_rope_parameters(c)
    return ROPE_INIT_FUNCTIONS[kind](c, "cpu", seq_len=length)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=OUT)
    args = parser.parse_args()
    cases = []
    for name, more, length in CASES:
        config = {**BASE, **more}
        inv_freq, factor = answer(config, length)
        assert inv_freq.dtype == torch.float32
        cases.append({"name": name, "max_pos": length, "attention_factor": float(factor),
                      "inv_freq": [float(f"{x:.9g}") for x in inv_freq.tolist()],
                      "config": config})
    made_with = {"transformers": transformers.__version__,
                 "torch": torch.__version__.split("+")[0]}
    os.makedirs(os.path.dirname(args.out), exist_ok=True)
    with open(args.out, "w") as f:
        f.write('{"format": 1, "made_with": %s, "cases": [\n' % json.dumps(made_with))
        f.write(",\n".join(json.dumps(c) for c in cases))
        f.write("\n]}\n")
    print(f"{len(cases)} cases in {os.path.normpath(args.out)}")


if __name__ == "__main__":
    main()
