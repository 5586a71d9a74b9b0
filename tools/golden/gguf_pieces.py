"""A SentencePiece tokenizer in both forms: tokenizer.json and the values of a GGUF file.

    gguf_pieces.py [--out tests/golden/gguf/pieces]

Takes the pieces of tests/golden/tokenizers/llama2, the earlier a merge made one the higher its
score, and all ways to cut a piece into two as merges, as converters of real models do. Writes
tokenizer.json, pieces.gguf (no tensors, by the gguf package) and cases.jsonl: texts and their ids
by the tokenizers package. Needs gguf and tokenizers.
"""

import argparse
import json
import pathlib

import gguf
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = "<tool>"
TEXTS = ["", " ", "  two  spaces ", "Once upon a time, 12 cats sang.",
         "caf\u00e9 \u4e2d\u6587 \U0001f600", "tabs\tand\nlines\n\n", f"{TOOL} x{TOOL}y",
         "It's the structure, isn't it?", "\u2581mark", "aaaaaaaaaaaaaaaa",
         "The quick brown fox jumps over the lazy dog", "def f(x):\n    return x"]


def all_cuts(ranked, ids):
    """[left, right] of every way to cut a piece into two pieces, best piece first."""
    return [[piece[:i], piece[i:]] for piece in ranked for i in range(1, len(piece))
            if piece[:i] in ids and piece[i:] in ids]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/gguf/pieces")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    source = json.loads((ROOT / "tests/golden/tokenizers/llama2/tokenizer.json")
                        .read_text(encoding="utf-8"))
    model = source["model"]
    made = list(dict.fromkeys(m.replace(" ", "") if isinstance(m, str) else "".join(m)
                              for m in model["merges"]))
    special = [t["content"] for t in source["added_tokens"][:3]]
    single = [t for t in model["vocab"] if t not in made and t not in special]
    tokens = special + single + made + [TOOL]
    kinds = ([gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
             + [gguf.TokenType.BYTE if t.startswith("<0x") else gguf.TokenType.NORMAL
                for t in single]
             + [gguf.TokenType.NORMAL] * len(made) + [gguf.TokenType.USER_DEFINED])
    scores = [0.0] * 3 + [-1e6 - i for i in range(len(single))]
    scores += [-float(i) for i in range(len(made))] + [0.0]

    pieces = [t for t, kind in zip(tokens, kinds, strict=True) if kind == gguf.TokenType.NORMAL]
    model["vocab"] = {t: i for i, t in enumerate(tokens[:-1])}
    model["merges"] = [" ".join(m) for m in all_cuts(made, set(pieces))]
    source["added_tokens"] = [
        {"id": tokens.index(t), "content": t, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": t != TOOL} for t in [*special, TOOL]]
    text = json.dumps(source, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    tokenizer = Tokenizer.from_str(text)
    with open(out / "cases.jsonl", "w", encoding="utf-8") as file:
        for case in TEXTS:
            ids = tokenizer.encode(case).ids
            file.write(json.dumps({"text": case, "ids": ids}) + "\n")

    writer = gguf.GGUFWriter(out / "pieces.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_scores(scores)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
