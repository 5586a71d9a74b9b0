"""GGUF files of real shapes with random blocks, for comparisons of speed. Needs gguf and numpy."""

import gguf
import numpy as np

# hidden, ff, layers, heads, kv heads, dim of a head, vocabulary
SHAPES = {"1b": (2048, 8192, 16, 32, 8, 64, 128256), "tiny": (256, 512, 2, 4, 2, 64, 1024)}
PIECE_ROWS = 8192


def blocks(kind, n, k, rng):
    """n rows of k: random codes, scales of about 1 / sqrt(k)."""
    if kind == gguf.GGMLQuantizationType.F32:
        return np.ones((n, k), np.float32)
    if kind == gguf.GGMLQuantizationType.BF16:
        values = (rng.random((n, k), np.float32) - 0.5) * (2 / np.sqrt(k))
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (n, k // elements, size), np.uint8)
    # Where the f16 scales of a block lie (GGUF v3), and their size beside the largest code.
    places, most = {"Q8_0": ((0,), 127), "Q4_0": ((0,), 8), "Q4_K": ((0, 2), 15 * 63),
                    "Q6_K": ((208,), 32 * 127)}[kind.name]
    scale = np.frombuffer(np.float16(1 / np.sqrt(k) / most).tobytes(), np.uint8)
    for at in places:
        raw[:, :, at:at + 2] = scale
    return raw.reshape(n, -1)


def tensors(shape):
    """(name, rows, columns) of an arch llama with a tied head."""
    hidden, ff, layers, heads, kv, dim, vocab = SHAPES[shape]
    yield "token_embd.weight", vocab, hidden
    yield "output_norm.weight", 0, hidden
    for i in range(layers):
        for name, n, k in (("attn_norm", 0, hidden), ("attn_q", heads * dim, hidden),
                           ("attn_k", kv * dim, hidden), ("attn_v", kv * dim, hidden),
                           ("attn_output", hidden, heads * dim), ("ffn_norm", 0, hidden),
                           ("ffn_gate", ff, hidden), ("ffn_up", ff, hidden),
                           ("ffn_down", hidden, ff)):
            yield f"blk.{i}.{name}.weight", n, k


def make(folder, shape, kind):
    """The path of FOLDER/SHAPE-KIND.gguf, which is written when it is not there. Embeddings of
    4-bit files are Q6_K, as those of published ones."""
    path = folder / f"{shape}-{kind}.gguf"
    if path.exists():
        return path
    hidden, ff, layers, heads, kv, dim, vocab = SHAPES[shape]
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    out = gguf.GGUFWriter(part, "llama")
    out.add_context_length(131072)
    out.add_embedding_length(hidden)
    out.add_feed_forward_length(ff)
    out.add_block_count(layers)
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_key_length(dim)
    out.add_value_length(dim)
    out.add_rope_dimension_count(dim)
    out.add_rope_freq_base(500000.0)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(vocab)
    out.add_tokenizer_model("no_vocab")
    rng = np.random.default_rng(1)
    for name, n, k in tensors(shape):
        of = kind if n else "f32"
        if name.startswith("token_embd") and kind.startswith("q4"):
            of = "q6_k"
        type_ = gguf.GGMLQuantizationType[of.upper()]
        pieces = [blocks(type_, min(PIECE_ROWS, max(n, 1) - at), k, rng)
                  for at in range(0, max(n, 1), PIECE_ROWS)]
        data = np.concatenate(pieces) if n else pieces[0][0]
        if of == "bf16":
            out.add_tensor(name, data, raw_shape=data.shape, raw_dtype=type_)
        else:
            out.add_tensor(name, data, raw_dtype=type_ if n else None)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return part.rename(path)
