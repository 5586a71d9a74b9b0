#!/usr/bin/env python3
"""Makes tests/golden/models: tiny random models of every family and what they must answer.

Each model is built by transformers from a fixed seed, saved in the Hugging Face layout, loaded
again from those files and run by transformers on PyTorch (eager attention, float32). The answers
(logits and greedy continuations) go to golden*.json beside the weights; README.md describes the
format. Nothing here is computed by the runtime under test.

Prompts are random ids. One is kept only if the best logit leads the second by more than MIN_GAP
of max|logit| at each of the STEPS greedy steps, so another summation order can't change a token.
"""

import argparse
import base64
import json
import math
import os
import shutil
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy
import safetensors
import torch
import transformers
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "tests", "golden", "models")
STEPS = 64
MIN_GAP = 1e-2
SEARCH_GAP = 1.2e-2  # a little more than MIN_GAP: the search runs in other batch shapes
MIN_DISTINCT = 20  # a continuation that only circles proves little
LENGTHS = (1, 5, 17, 40)
ALL_POSITIONS = 17  # the prompt of this length also gets the logits of all its positions
TRIES = 24  # batches of BATCH random prompts per length
BATCH = 512
# What a correct runtime may be off, of max|logit|. Rounding keys and values to 16 bits turns the
# last bit of a float32 sum into a whole step now and then, hence the wider other numbers.
TOLERANCE = {"f32": 1e-4, "bf16": 5e-3, "f16": 1e-3}
MAX_NOISE = 0.2  # float32 against float64: this part of the tolerance at most

WIDE = dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2)
SMALL = dict(hidden_size=32, intermediate_size=64, num_attention_heads=2, num_key_value_heads=1)
EXT_SHORT = [1.0, 1.02, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0]
EXT_LONG = [1.1, 1.4, 2.0, 3.0, 4.5, 6.0, 8.0, 9.0]
POLICY = {
    "fixed": "rope frequencies do not depend on the length",
    "short": (
        "longrope: short factors for every position, as max_model_len is not above "
        "original_max_position_embeddings; the attention factor still comes from "
        "max_position_embeddings / original_max_position_embeddings"
    ),
    "long": (
        "longrope: long factors for every position, as max_model_len is above "
        "original_max_position_embeddings (reached by padding every forward to max_model_len)"
    ),
    "dynamic": (
        "dynamic NTK: max_model_len is not above max_position_embeddings, so the "
        "frequencies are the default ones"
    ),
    "dynamic-long": (
        "dynamic NTK: frequencies of a sequence of max_model_len for every position "
        "(reached by padding every forward to max_model_len)"
    ),
}


def spec(name, family, shape, seed, **more):
    """One row of the table. goldens: (file suffix, max_model_len, policy, kv dtype or None)."""
    row = dict(name=name, family=family, shape=shape, seed=seed, config={}, dtype="f32")
    row.update(layout="v5", goldens=[("", 128, "fixed", None)], shard=None, stops=False)
    row.update(more)
    return row


def rope(kind, **more):
    return {"rope_parameters": dict(rope_type=kind, rope_theta=10000.0, **more)}


SPECS = [
    spec("llama-default", "Llama", WIDE, 1000, layout="v4", stops=True),
    spec(
        "llama-linear",
        "Llama",
        dict(SMALL, num_key_value_heads=2),
        1100,
        layout="v4-old",
        config=rope("linear", factor=4.0),
    ),
    spec(
        "llama-dynamic",
        "Llama",
        SMALL,
        1200,
        layout="v4",
        config=dict(rope("dynamic", factor=2.0), max_position_embeddings=112),
        goldens=[("", 112, "dynamic", None), ("-long", 160, "dynamic-long", None)],
    ),
    spec(
        "llama-llama3",
        "Llama",
        SMALL,
        1300,
        layout="v4",
        config=dict(
            rope(
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
            max_position_embeddings=512,
        ),
    ),
    spec(
        "llama-yarn",
        "Llama",
        SMALL,
        1400,
        layout="v4",
        config=dict(
            rope("yarn", factor=4.0, original_max_position_embeddings=64),
            max_position_embeddings=256,
        ),
    ),
    spec(
        "llama-yarn-factor",
        "Llama",
        SMALL,
        1500,
        config=dict(
            rope(
                "yarn",
                factor=8.0,
                original_max_position_embeddings=32,
                attention_factor=1.25,
                beta_fast=8.0,
                beta_slow=0.5,
            ),
            max_position_embeddings=256,
        ),
    ),
    spec(
        "llama-yarn-mscale",
        "Llama",
        SMALL,
        1600,
        config=dict(
            rope(
                "yarn",
                factor=4.0,
                original_max_position_embeddings=128,
                beta_fast=4.0,
                beta_slow=0.5,
                mscale=1.0,
                mscale_all_dim=0.5,
                truncate=False,
            ),
            max_position_embeddings=512,
        ),
    ),
    spec(
        "llama-longrope",
        "Llama",
        SMALL,
        1700,
        layout="v4",
        config=dict(
            rope(
                "longrope",
                short_factor=EXT_SHORT,
                long_factor=EXT_LONG,
                original_max_position_embeddings=112,
            ),
            max_position_embeddings=448,
        ),
        goldens=[("", 112, "short", None), ("-long", 160, "long", None)],
    ),
    spec(
        "llama-bias",
        "Llama",
        WIDE,
        1800,
        config=dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    ),
    spec("llama-headdim", "Llama", dict(WIDE, head_dim=32), 1900),
    spec("mistral-window", "Mistral", WIDE, 2000, layout="v4", config=dict(sliding_window=8)),
    spec(
        "mistral-full",
        "Mistral",
        dict(
            hidden_size=48,
            intermediate_size=80,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=16,
        ),
        2100,
        config=dict(sliding_window=None, vocab_size=251),
    ),
    spec(
        "qwen2",
        "Qwen2",
        WIDE,
        2200,
        layout="v4",
        config=dict(tie_word_embeddings=True, use_sliding_window=False),
    ),
    spec(
        "qwen2-window",
        "Qwen2",
        SMALL,
        2300,
        layout="v4",
        config=dict(use_sliding_window=True, sliding_window=8, max_window_layers=1),
    ),
    spec(
        "qwen3",
        "Qwen3",
        dict(WIDE, head_dim=32),
        2400,
        config=dict(rope("default"), tie_word_embeddings=True, rms_norm_eps=1e-6),
    ),
    spec(
        "qwen3-window",
        "Qwen3",
        dict(SMALL, head_dim=32),
        2500,
        config=dict(
            use_sliding_window=True,
            sliding_window=6,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    spec(
        "llama-bf16",
        "Llama",
        WIDE,
        2600,
        dtype="bf16",
        layout="v4",
        goldens=[("", 128, "fixed", None), ("-kv16", 128, "fixed", torch.bfloat16)],
    ),
    spec(
        "llama-f16",
        "Llama",
        WIDE,
        2700,
        dtype="f16",
        goldens=[("", 128, "fixed", None), ("-kv16", 128, "fixed", torch.float16)],
    ),
    spec("llama-sharded", "Llama", WIDE, 2800, shard=240_000),
]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

KV_DTYPE = None


def rounded_kv_attention(module, query, key, value, *args, **kwargs):
    """Eager attention on keys and values as a 16-bit cache would hold them."""
    key = key.to(KV_DTYPE).to(query.dtype)
    value = value.to(KV_DTYPE).to(query.dtype)
    return eager_attention_forward(module, query, key, value, *args, **kwargs)


ALL_ATTENTION_FUNCTIONS.register("rounded_kv", rounded_kv_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register("rounded_kv", eager_mask)


def make_config(row):
    keys = dict(
        vocab_size=256,
        num_hidden_layers=2,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        bos_token_id=1,
        eos_token_id=2,
        hidden_act="silu",
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    keys.update(row["shape"])
    keys.update(row["config"])
    return getattr(transformers, row["family"] + "Config")(**keys)


def fill(model, seed):
    """Weights wide enough that attention picks and the logits stand apart."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            r = torch.randn(p.shape, generator=g)
            if name.endswith("norm.weight"):
                p.copy_(1.0 + 0.25 * r)
            elif p.dim() == 1:
                p.copy_(0.3 * r)
            elif name.endswith("embed_tokens.weight"):
                p.copy_(0.5 * r)
            else:
                p.copy_(1.5 / math.sqrt(p.shape[1]) * r)


def rewrite_config(path, layout):
    """Turns the config that transformers 5 writes into the older layout of most released files."""
    with open(path) as f:
        c = json.load(f)
    if layout != "v5":
        params = c.pop("rope_parameters")
        c["rope_theta"] = params.pop("rope_theta")
        if layout == "v4-old":
            params["type"] = params.pop("rope_type")
        c["rope_scaling"] = None if params.get("rope_type") == "default" else params
        c["torch_dtype"] = c.pop("dtype")
        c.pop("layer_types", None)
        c.pop("transformers_version", None)
    with open(path, "w") as f:
        json.dump(c, f, indent=2, sort_keys=True)
        f.write("\n")


def save_model(row, folder, seed):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model = getattr(transformers, row["family"] + "ForCausalLM")(make_config(row)).eval()
    fill(model, seed)
    if row["stops"]:
        model.generation_config.eos_token_id = [2, 7]
    model = model.to(DTYPES[row["dtype"]])
    extra = {"max_shard_size": row["shard"]} if row["shard"] else {}
    model.save_pretrained(folder, **extra)
    rewrite_config(os.path.join(folder, "config.json"), row["layout"])


def load_model(folder, kv):
    attention = "rounded_kv" if kv is not None else "eager"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention
    )
    return model.eval()


class Runner:
    """Full forwards without a cache; with pad_to, every forward has that many positions."""

    def __init__(self, model, pad_to):
        self.model = model
        self.pad_to = pad_to

    def __call__(self, ids):
        n = ids.shape[1]
        if self.pad_to:
            pad = torch.zeros((ids.shape[0], self.pad_to - n), dtype=ids.dtype)
            ids = torch.cat([ids, pad], dim=1)
        with torch.inference_mode():
            return self.model(input_ids=ids, use_cache=False).logits[:, :n]


def gaps_of(logits):
    top = logits.topk(2, dim=-1)
    gap = (top.values[..., 0] - top.values[..., 1]) / logits.abs().amax(dim=-1)
    return gap, top.indices[..., 0]


def candidates(n, vocab, g):
    """Random prompts of n ids, none of them one of the first three (unk, bos, eos)."""
    if n == 1:
        return torch.arange(3, vocab).reshape(-1, 1)
    return torch.randint(3, vocab, (BATCH, n), generator=g)


def survivors(run, ids, stop_ids, want_stop):
    """Grows all prompts greedily and yields those that keep their gaps for STEPS steps."""
    n = ids.shape[1]
    for step in range(STEPS):
        gap, token = gaps_of(run(ids)[:, -1])
        stopped = torch.isin(token, stop_ids)
        good = gap > SEARCH_GAP
        ids = torch.cat([ids, token[:, None]], dim=1)
        if want_stop and step >= 4 and bool((good & stopped).any()):
            row = int(torch.nonzero(good & stopped)[0])
            return ids[row : row + 1]
        ids = ids[good & ~stopped]
        if not len(ids):
            return ids
    if want_stop:
        return ids[:0]
    distinct = torch.tensor([len(set(row[n:].tolist())) for row in ids])
    return ids[distinct >= MIN_DISTINCT]


def search(run, n, vocab, seed, stop_ids, want_stop=False):
    g = torch.Generator().manual_seed(seed * 100 + n)
    for _ in range(1 if n == 1 else TRIES):
        found = survivors(run, candidates(n, vocab, g), stop_ids, want_stop)
        if len(found):
            return found[0].tolist()
    return None


def pack(x):
    return base64.b64encode(x.detach().numpy().astype("<f4").tobytes()).decode()


def noise(model, run, ids, logits):
    """How far float32 is from float64, of max|logit|."""
    wide = Runner(model.double(), run.pad_to)(ids)
    model.float()
    error = float((wide - logits).abs().max() / logits.abs().max())
    return error


def generate(model, prompt, steps):
    """transformers' own cached greedy loop, as a second opinion on the full forwards."""
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt)),
        do_sample=False,
        max_new_tokens=steps,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


def record(model, run, ids, n):
    """Answers of one sequence, recomputed alone and checked step by step."""
    prompt, greedy = ids[:n], ids[n:]
    alone = run(torch.tensor([prompt]))[0]
    whole = run(torch.tensor([ids]))
    gap, token = gaps_of(whole[0, n - 1 : -1])
    assert token.tolist() == greedy and float(gap.min()) > MIN_GAP
    if not run.pad_to:
        assert generate(model, prompt, len(greedy)) == greedy
    entry = {"ids": prompt, "max_abs": float(alone[-1].abs().max()), "logits": pack(alone[-1])}
    if n == ALL_POSITIONS:
        entry["all_logits"] = pack(alone)
    entry["greedy"] = greedy
    entry["gaps"] = [float(f"{x:.3g}") for x in gap.tolist()]
    return entry, noise(model, run, torch.tensor([ids]), whole)


def make_golden(row, folder, golden, seed):
    """One golden file, or None when this seed has no prompt of some length."""
    suffix, max_model_len, policy, kv = golden
    global KV_DTYPE
    KV_DTYPE = kv
    model = load_model(folder, kv)
    run = Runner(model, max_model_len if policy in ("long", "dynamic-long") else 0)
    vocab = model.config.vocab_size
    stop_ids = torch.tensor([2, 7])
    prompts, stops, worst = [], [], 0.0
    for n in LENGTHS:
        ids = search(run, n, vocab, seed, stop_ids)
        if ids is None:
            print(f"{row['name']}{suffix} seed {seed}: no prompt of length {n}", flush=True)
            return None
        entry, error = record(model, run, ids, n)
        prompts.append(entry)
        worst = max(worst, error)
    if row["stops"]:
        ids = search(run, 9, vocab, seed, stop_ids, want_stop=True)
        if ids is None:
            return None
        entry, _ = record(model, run, ids, 9)
        stops.append(dict(entry, finish="stop"))
    stored = {None: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}[kv]
    assert worst < MAX_NOISE * TOLERANCE[stored], f"float32 noise {worst}"
    return {
        "format": 1,
        "model": row["name"],
        "family": row["family"],
        "seed": seed,
        "made_with": {
            "transformers": transformers.__version__,
            "torch": torch.__version__.split("+")[0],
            "safetensors": safetensors.__version__,
            "numpy": numpy.__version__,
        },
        "compute": {
            "attention": "eager",
            "weights": row["dtype"],
            "activations": "f32",
            "kv": stored,
        },
        "max_model_len": max_model_len,
        "rope_policy": POLICY[policy],
        "vocab_size": vocab,
        "steps": STEPS,
        "min_gap": MIN_GAP,
        "tolerance": TOLERANCE[stored],
        "f64_error": float(f"{worst:.2g}"),
        "prompts": prompts,
        "stops": stops,
    }


def text_of(content):
    """JSON with one line per key and per prompt, so that a diff can be read."""
    lines = []
    for key, value in content.items():
        if key in ("prompts", "stops") and value:
            rows = ",\n  ".join(json.dumps(entry) for entry in value)
            lines.append(f' "{key}": [\n  {rows}\n ]')
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def make(row, out):
    folder = os.path.join(out, row["name"])
    for seed in range(row["seed"], row["seed"] + 100):
        save_model(row, folder, seed)
        made = {}
        for golden in row["goldens"]:
            made[golden[0]] = make_golden(row, folder, golden, seed)
            if made[golden[0]] is None:
                break
        if None not in made.values():
            break
    else:
        sys.exit(f"{row['name']}: no seed gives prompts of every length")
    for suffix, content in made.items():
        with open(os.path.join(folder, f"golden{suffix}.json"), "w") as f:
            f.write(text_of(content))
    for entry in os.scandir(folder):
        os.chmod(entry.path, 0o644)
    print(
        f"{row['name']}: seed {seed}, noise {[m['f64_error'] for m in made.values()]}", flush=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=OUT, help="folder to fill (default tests/golden/models)")
    parser.add_argument("names", nargs="*", help="models to make (default all)")
    args = parser.parse_args()
    known = [row["name"] for row in SPECS]
    for name in args.names:
        if name not in known:
            sys.exit(f"unknown model {name}; known: {' '.join(known)}")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for row in SPECS:
        if not args.names or row["name"] in args.names:
            make(row, args.out)


if __name__ == "__main__":
    main()
