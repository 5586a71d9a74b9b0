#!/usr/bin/env python3
"""Makes tests/golden/tokenizers: small tokenizers and what the tokenizers package does with them.

Every tokenizer is set up like a known family (splitting, normalizing, fallback, decoding), is
trained on the sentences of corpus.py and gets added tokens with odd flags. It is written as
tokenizer.json, read back from that file, and asked to encode and decode some 400 texts
(cases.jsonl) and to decode id by id (stream.jsonl). README.md describes the formats.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers.decoders import DecodeStream

import corpus

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "tests", "golden", "tokenizers")

ALPHABET = 180  # characters that the models with byte fallback know

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex, trim=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": trim,
        "use_regex": use_regex,
    }


def template(bos, bos_id):
    special = {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, a],
        "pair": [
            {"SpecialToken": {"id": bos, "type_id": 0}},
            a,
            {"SpecialToken": {"id": bos, "type_id": 1}},
            b,
        ],
        "special_tokens": special,
    }


def sequence(kind, key, parts):
    return {"type": kind, key: parts}


REPLACE_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
FALLBACK_DECODER = [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP_ONE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}

# Contents and flags. build() adds one more, a piece that training had put into the vocabulary.
ODD_TOKENS = [
    dict(content="<|plain|>", special=True),
    dict(content="<|left|>", special=True, lstrip=True),
    dict(content="<|right|>", special=True, rstrip=True),
    dict(content="<|both|>", lstrip=True, rstrip=True),
    dict(content="<tool"),
    dict(content="<tool>", special=True),
    dict(content="<tool>er"),
    dict(content="abcd"),
    dict(content="cdefg"),
    dict(content="bc"),
    dict(content="zebra", single_word=True),
    dict(content="kiwi", single_word=True, normalized=True),
    dict(content="No\u00ebl", normalized=True),
    dict(content="Re\u0301my", normalized=True),
    dict(content="Ane\u0301"),
    dict(content="two words", normalized=True),
    dict(content=" x ", lstrip=True),
    dict(content="\u2581bar", rstrip=True, normalized=True),
    dict(content="🙂👍"),
]
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def family(name, size, seed, **more):
    row = dict(
        name=name,
        size=size,
        seed=seed,
        byte_level=True,
        normalizer=None,
        post=None,
        bos=None,
        ignore_merges=False,
        old_merges=False,
        pretty=False,
        specials=[],
        odd=ODD_TOKENS,
    )
    row.update(more)
    return row


FAMILIES = [
    family(
        "gpt2",
        640,
        11,
        pre=byte_level(True),
        old_merges=True,
        specials=["<|endoftext|>"],
        post=byte_level(True),
        eos="<|endoftext|>",
        bos="<|endoftext|>",
        cls="GPT2Tokenizer",
    ),
    family(
        "llama3",
        1000,
        12,
        ignore_merges=True,
        cls="PreTrainedTokenizerFast",
        pre=sequence("Sequence", "pretokenizers", [split(LLAMA3), byte_level(False, True)]),
        specials=[
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ],
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
        post="bos+bytes",
    ),
    family(
        "qwen2",
        900,
        13,
        normalizer={"type": "NFC"},
        old_merges=True,
        pretty=True,
        pre=sequence("Sequence", "pretokenizers", [split(QWEN2), byte_level(False)]),
        specials=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        eos="<|im_end|>",
        post=byte_level(False),
        cls="Qwen2Tokenizer",
    ),
    family(
        "o200k",
        800,
        14,
        cls="PreTrainedTokenizerFast",
        pre=sequence("Sequence", "pretokenizers", [split(O200K), byte_level(False, True)]),
        specials=["<|startoftext|>", "<|endoftext|>"],
        eos="<|endoftext|>",
        post=byte_level(False, True),
    ),
    family(
        "deepseek",
        800,
        15,
        cls="LlamaTokenizerFast",
        normalizer=sequence("Sequence", "normalizers", []),
        pre=sequence(
            "Sequence", "pretokenizers", [split(p) for p in DEEPSEEK] + [byte_level(False, True)]
        ),
        specials=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
        bos="<｜begin▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
        post="bos+bytes",
    ),
    family(
        "llama2",
        1300,
        16,
        byte_level=False,
        cls="LlamaTokenizer",
        old_merges=True,
        normalizer=sequence(
            "Sequence", "normalizers", [{"type": "Prepend", "prepend": "\u2581"}, REPLACE_SPACE]
        ),
        pre=None,
        specials=["<unk>", "<s>", "</s>"],
        bos="<s>",
        eos="</s>",
        post="bos",
        decoder=sequence("Sequence", "decoders", FALLBACK_DECODER + [STRIP_ONE]),
    ),
    family(
        "llama2-metaspace",
        1100,
        17,
        byte_level=False,
        cls="LlamaTokenizer",
        pre={
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": "first",
            "split": False,
        },
        specials=["<unk>", "<s>", "</s>"],
        bos="<s>",
        eos="</s>",
        post="bos",
        decoder=sequence("Sequence", "decoders", FALLBACK_DECODER + [STRIP_ONE]),
    ),
    family(
        "gemma",
        1200,
        18,
        byte_level=False,
        cls="GemmaTokenizer",
        normalizer=REPLACE_SPACE,
        pre={
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        specials=["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"],
        odd=ODD_TOKENS + [dict(content="\n\n"), dict(content="\u2581\u2581\u2581\u2581\u2581")],
        bos="<bos>",
        eos="<end_of_turn>",
        post="bos",
        decoder=sequence("Sequence", "decoders", FALLBACK_DECODER),
    ),
]


def train_bytes(row, lines):
    """Pieces in id order and merges, trained behind the family's own splitter."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    parts = row["pre"].get("pretokenizers", [row["pre"]])
    steps = [
        pre_tokenizers.Split(Regex(p["pattern"]["Regex"]), "isolated")
        for p in parts
        if p["type"] == "Split"
    ]
    last = parts[-1]["use_regex"]
    t.pre_tokenizer = pre_tokenizers.Sequence(
        steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=last)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=row["size"],
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    return trained(t, trainer, lines)


def train_chars(row, lines):
    """Whole lines as one word, so merges cross spaces as in models without a splitter."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    # The trainer itself would cut the alphabet at random among equally frequent characters.
    counts = collections.Counter(t.normalizer.normalize_str("\n".join(lines)))
    alphabet = sorted(counts, key=lambda c: (-counts[c], c))[:ALPHABET]
    trainer = trainers.BpeTrainer(
        vocab_size=row["size"] - 270,
        show_progress=False,
        initial_alphabet=alphabet,
        limit_alphabet=ALPHABET,
        max_token_length=9,
    )
    return trained(t, trainer, lines)


def trained(t, trainer, lines):
    t.train_from_iterator(lines, trainer)
    model = json.loads(t.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    return pieces, [list(m) for m in model["merges"]]


def whole_words(pieces):
    """Vocabulary entries that no merge reaches: found only where ignore_merges is heeded."""
    mapper = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = [" unreachable", " pagodahouse", "pagodahouse", "'LL", "999", " 🍵", " слово"]
    mapped = [mapper.pre_tokenize_str(text)[0][0] for text in words]
    return [w for w in mapped if w not in pieces]


def build(row):
    """The tokenizer.json of a family as a dictionary."""
    rng = random.Random(row["seed"])
    lines = corpus.training_lines(rng)
    if row["byte_level"]:
        pieces, merges = train_bytes(row, lines)
        pieces += whole_words(pieces) if row["ignore_merges"] else []
        words = pieces + row["specials"]
    else:
        pieces, merges = train_chars(row, lines)
        words = row["specials"] + [f"<0x{b:02X}>" for b in range(256)] + pieces
        for a in ("\u2581", "\u2581\u2581", "\u2581" * 4):
            if a + a not in words:
                words.append(a + a)
                merges.append([a, a])
    vocab = {w: i for i, w in enumerate(words)}
    inside = [w for w in pieces if re.fullmatch("[a-z]{3,6}", w)][-1]
    odd = row["odd"] + [dict(content=inside)]
    added, next_id = [], len(words)
    for token in [dict(content=s, special=True) for s in row["specials"]] + odd:
        id_ = vocab.get(token["content"])
        if id_ is None:
            id_, next_id = next_id, next_id + 1
        entry = {"id": id_, "content": token["content"]}
        entry.update({flag: token.get(flag, False) for flag in FLAGS})
        added.append(entry)
    if row["byte_level"]:  # as in the released files, the specials are no part of the model
        for s in row["specials"]:
            del vocab[s]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda e: e["id"]),
        "normalizer": row["normalizer"],
        "pre_tokenizer": row["pre"],
        "post_processor": post_processor(row, added),
        "decoder": row.get("decoder") or byte_level(True, True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if row["byte_level"] else "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": not row["byte_level"],
            "byte_fallback": not row["byte_level"],
            "ignore_merges": row["ignore_merges"],
            "vocab": vocab,
            "merges": [" ".join(m) for m in merges] if row["old_merges"] else merges,
        },
    }


def post_processor(row, added):
    if not isinstance(row["post"], str):
        return row["post"]
    bos_id = next(e["id"] for e in added if e["content"] == row["bos"])
    bos = template(row["bos"], bos_id)
    if row["post"] == "bos":
        return bos
    return {"type": "Sequence", "processors": [byte_level(True), bos]}


def config(row, content):
    """tokenizer_config.json as released models have it."""
    keys = {
        "added_tokens_decoder": {
            str(e["id"]): {k: e[k] for k in ("content",) + FLAGS} for e in content["added_tokens"]
        }
    }
    keys.update(
        bos_token=row["bos"],
        eos_token=row["eos"],
        clean_up_tokenization_spaces=False,
        model_max_length=1000000000000000019884624838656,
        tokenizer_class=row["cls"],
    )
    if not row["byte_level"]:
        keys.update(add_bos_token=True, add_eos_token=False, unk_token="<unk>")
    return keys


def texts(row, added, rng):
    """About 400 texts: the lists of corpus.py, added tokens in odd places, random ones."""
    out = corpus.GREETINGS + corpus.WHITESPACE + corpus.WORDS + corpus.UNICODE
    contents = [e["content"] for e in added]
    for content in contents:
        if "<0x" not in content:
            out = out + rng.sample(corpus.around(content, contents, rng), 4)
    for e in added:
        if e["single_word"]:
            out = out + rng.sample(corpus.word_borders(e["content"]), 14)
    out = out + [
        "abcdefg",
        "xabcdefgabcd",
        "<tool>ers <toolbox <tool>er",
        "<|left|><|right|> \n <|both|> ",
        "Noe\u0308l No\u00ebl",
        "R\u00e9my Re\u0301my",
        "An\u00e9 Ane\u0301",
        "two  words two words",
    ]
    out = out + corpus.random_texts(rng, 56)
    return list(dict.fromkeys(out))


def case(t, text):
    ids = t.encode(text, add_special_tokens=False).ids
    full = t.encode(text, add_special_tokens=True).ids
    return {
        "text": text,
        "ids": ids,
        "ids_special": full,
        "decoded": t.decode(full, skip_special_tokens=False),
        "decoded_skip": t.decode(full, skip_special_tokens=True),
    }


def stream_pieces(t, ids, prompt, skip):
    stream = DecodeStream(ids=prompt, skip_special_tokens=skip)
    return [stream.step(t, i) for i in ids]


def stream_cases(t, added, rng):
    """Ids one by one. split: valid text; continue: after a prompt; lossy: random ids."""
    out = []
    sources = [
        "🙂 👩‍👩‍👧‍👦x",
        "𠮷野家で食べる",
        "ქართული",
        " leading space",
        "Größe 𝔘𝔫𝔦 é",
        "한국어 텍스트",
        "a\n\n b  c",
        "\x00🏳️‍🌈\x00",
        "𓀀",
        "العربية عربي",
        "x<|plain|>y <|left|>z",
        "❤️ 1️⃣",
        "𝟘",
    ]
    sources += corpus.random_texts(rng, 12)
    for text in sources:
        ids = t.encode(text, add_special_tokens=False).ids
        for skip in (False, True):
            whole = t.decode(ids, skip_special_tokens=skip)
            if "\ufffd" not in whole:
                out.append(
                    {
                        "kind": "split",
                        "skip": skip,
                        "prompt": [],
                        "ids": ids,
                        "text": whole,
                        "pieces": stream_pieces(t, ids, [], skip),
                    }
                )
    prompts = ["The keeper", "小塔", "x ", "🙂", " a"]
    for prompt in prompts:
        for text in rng.sample(sources, 3):
            head = t.encode(prompt, add_special_tokens=True).ids
            tail = t.encode(text, add_special_tokens=False).ids
            before, whole = t.decode(head), t.decode(head + tail)
            if "\ufffd" not in whole and whole.startswith(before):
                out.append(
                    {
                        "kind": "continue",
                        "skip": True,
                        "prompt": head,
                        "ids": tail,
                        "text": whole[len(before) :],
                        "pieces": stream_pieces(t, tail, head, True),
                    }
                )
    n = t.get_vocab_size()
    special = [e["id"] for e in added if e["special"]]
    for i in range(24):
        low = 0 if i % 3 else n // 3
        ids = (
            [rng.randrange(low, n if i % 2 else 300) for _ in range(rng.randrange(1, 20))]
            if i % 3
            else [rng.randrange(3, 259) for _ in range(rng.randrange(1, 12))]
        )
        if i % 4 == 0:
            ids.insert(len(ids) // 2, rng.choice(special))
        out.append(
            {
                "kind": "lossy",
                "skip": bool(i % 2),
                "prompt": [],
                "ids": ids,
                "text": t.decode(ids, skip_special_tokens=bool(i % 2)),
                "pieces": None,
            }
        )
    return out


def write_lines(path, rows):
    with open(path, "w") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=True) + "\n")


def make(row, out):
    folder = os.path.join(out, row["name"])
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    content = build(row)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, ensure_ascii=False, indent=2 if row["pretty"] else None)
        f.write("\n")
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config(row, content), f, ensure_ascii=False, indent=2)
        f.write("\n")
    t = Tokenizer.from_file(path)
    for e in content["added_tokens"]:
        assert t.token_to_id(e["content"]) == e["id"], e
    rng = random.Random(row["seed"] + 1000)
    cases = [case(t, text) for text in texts(row, content["added_tokens"], rng)]
    write_lines(os.path.join(folder, "cases.jsonl"), cases)
    streams = stream_cases(t, content["added_tokens"], rng)
    write_lines(os.path.join(folder, "stream.jsonl"), streams)
    print(f"{row['name']}: {t.get_vocab_size()} tokens, {len(cases)} cases, {len(streams)} streams")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--out", default=OUT, help="folder to fill (default tests/golden/tokenizers)"
    )
    parser.add_argument("names", nargs="*", help="tokenizers to make (default all)")
    args = parser.parse_args()
    known = [row["name"] for row in FAMILIES]
    for name in args.names:
        if name not in known:
            sys.exit(f"unknown tokenizer {name}; known: {' '.join(known)}")
    for row in FAMILIES:
        if not args.names or row["name"] in args.names:
            make(row, args.out)


if __name__ == "__main__":
    main()
