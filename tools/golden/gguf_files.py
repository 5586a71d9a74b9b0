"""GGUF files of models that lie in Hugging Face layout, written with the gguf package.

    gguf_files.py [NAME...] [--out tests/golden/gguf]      the golden models of tests/golden/models
    gguf_files.py --model FOLDER --type q8_0 FILE.gguf     any model of the families below
    ... --split N                                          into N files

What the converters of ggml do: names by gguf's own table, rows of q and k of arch llama permuted
for interleaved rope, norms and biases in F32, llama3 rope scaling as rope_freqs.weight, byte-level
tokenizers as tokens and merges. Types: f32, f16, bf16 and those the gguf package can quantize to.
Needs gguf and numpy.
"""

import argparse
import json
import math
import pathlib
import struct

import gguf
import numpy as np

ARCHS = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2",
         "Qwen3ForCausalLM": "qwen3"}
# Golden models that become files, and the types of their matrices.
GOLDEN = {"llama-default": "f32", "llama-llama3": "f32", "llama-yarn": "f32", "llama-bias": "f32",
          "qwen2": "f32", "qwen3": "f32", "llama-bf16": "bf16"}
SPLIT = {"llama-default": 3}


def read_safetensors(folder):
    """name -> float32 array, over all files of the folder."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        n = struct.unpack("<Q", raw[:8])[0]
        for name, entry in json.loads(raw[8:8 + n]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            data = raw[8 + n + begin:8 + n + end]
            if entry["dtype"] == "BF16":
                values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
            tensors[name] = values.astype(np.float32).reshape(entry["shape"])
    return tensors


def permute(rows, n_heads):
    """Rows of each head from two halves to pairs."""
    return (rows.reshape(n_heads, 2, rows.shape[0] // n_heads // 2, *rows.shape[1:])
            .swapaxes(1, 2).reshape(rows.shape))


def rope_freqs(config, head_dim):
    """Divisors of the frequencies of llama3 scaling (its paper's formula)."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    base = scaling.get("rope_theta") or config["rope_theta"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    old = scaling["original_max_position_embeddings"]
    out = []
    for i in range(head_dim // 2):
        wavelength = 2 * math.pi * base ** (2 * i / head_dim)
        if wavelength < old / high:
            out.append(1.0)
        elif wavelength > old / low:
            out.append(scaling["factor"])
        else:
            smooth = (old / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(out, np.float32)


def add_rope(writer, config, head_dim):
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    writer.add_rope_freq_base(float(scaling.get("rope_theta") or config.get("rope_theta", 10000)))
    writer.add_rope_dimension_count(head_dim)
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(float(scaling["factor"]))
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(
            scaling.get("original_max_position_embeddings")
            or config["max_position_embeddings"])
        for key, add in (("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
                         ("beta_slow", writer.add_rope_scaling_yarn_beta_slow)):
            if scaling.get(key):
                add(float(scaling[key]))
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_freqs(config, head_dim))
    elif kind not in ("default", "linear", "yarn"):
        raise SystemExit(f"rope {kind} is not written")


def add_config(writer, config):
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if config["architectures"][0] == "MistralForCausalLM" and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    add_rope(writer, config, head_dim)


def add_tokenizer(writer, folder, config):
    path = folder / "tokenizer.json"
    if not path.exists():
        more = folder / "generation_config.json"
        eos = json.loads(more.read_text()).get("eos_token_id") if more.exists() else None
        eos = config.get("eos_token_id") if eos is None else eos
        eos = eos if isinstance(eos, list) else [eos] if eos is not None else []
        for i, add in zip(eos, (writer.add_eos_token_id, writer.add_eot_token_id,
                                writer.add_eom_token_id), strict=False):
            add(i)
        return
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    model = tokenizer["model"]
    n = config["vocab_size"]
    tokens = [f"[PAD{i}]" for i in range(n)]
    kinds = [int(gguf.TokenType.UNUSED)] * n
    for token, i in model["vocab"].items():
        tokens[i], kinds[i] = token, int(gguf.TokenType.NORMAL)
    for entry in tokenizer["added_tokens"]:
        tokens[entry["id"]] = entry["content"]
        kinds[entry["id"]] = int(gguf.TokenType.CONTROL if entry["special"]
                                 else gguf.TokenType.USER_DEFINED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    for key, add in (("bos_token", writer.add_bos_token_id), ("eos_token", writer.add_eos_token_id),
                     ("pad_token", writer.add_pad_token_id)):
        if settings.get(key):
            add(tokens.index(settings[key]))
    writer.add_add_bos_token(bool(settings.get("add_bos_token")))
    if settings.get("chat_template"):
        writer.add_chat_template(settings["chat_template"])


def stored(values, kind, name):
    """A matrix in its type (rows that hold no whole blocks: f16), a vector in F32."""
    if values.ndim == 1 or kind == "f32":
        return values.astype(np.float32), None
    if kind == "f16":
        return values.astype(np.float16), None
    type_ = gguf.GGMLQuantizationType[kind.upper()]
    if values.shape[-1] % gguf.GGML_QUANT_SIZES[type_][0] != 0:
        print(f"{name}: rows of {values.shape[-1]} stay F16")
        return values.astype(np.float16), None
    return gguf.quants.quantize(values, type_), type_


def write(folder, out, kind, split=0):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    arch = ARCHS[config["architectures"][0]]
    tensors = read_safetensors(folder)
    most = -(-len(tensors) // split) if split else 0
    writer = gguf.GGUFWriter(out, arch, split_max_tensors=most)
    writer.add_name(folder.name)
    add_config(writer, config)
    add_tokenizer(writer, folder, config)
    names = gguf.get_tensor_name_map(
        {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch], config["num_hidden_layers"])
    for name, values in tensors.items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if arch == "llama" and (".q_proj." in name or ".k_proj." in name):
            heads = config["num_attention_heads"]
            if ".k_proj." in name:
                heads = config.get("num_key_value_heads") or heads
            values = permute(values, heads)
        data, raw = stored(values, kind, name)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data,
                          raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--type", default="f16")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/golden/gguf")
    args = parser.parse_args()
    if args.model:
        write(args.model, pathlib.Path(args.names[0]), args.type, args.split)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or GOLDEN:
        write(root / "tests/golden/models" / name, args.out / f"{name}.gguf", GOLDEN[name],
              SPLIT.get(name, 0))


if __name__ == "__main__":
    main()
