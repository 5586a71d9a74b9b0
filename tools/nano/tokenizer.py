#!/usr/bin/env python3
"""Makes nano's tokenizer: byte-level BPE learnt from the corpus, in the usual Hugging Face files.

What: tokenizer.json (NFC, the split pattern of Qwen2 in which every digit is a token of its own,
byte-level BPE), tokenizer_config.json with the chat template, chat_template.jinja and
special_tokens_map.json.

How: trained with the `tokenizers` library on documents of the seeded corpus, so the same seed gives
the same vocabulary. Token 0 ends plain text and pads, 1 and 2 frame the turns of a chat; 3 and 4
frame a tool call and are ordinary text to a reader, hence "special": false.

Usage: tokenizer.py OUT_FOLDER
"""

import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

import grammar
from split import SEED, Split

VOCAB = 1536
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<tool_call>", "</tool_call>"]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTEXT = 1024


def train(documents):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                           use_regex=False)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                                    use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, min_frequency=3, show_progress=False,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    # the marks are cut out of the text, so that no merge crosses them
    pieces = (piece for d in documents
              for piece in grammar.document_text(d).replace(MARKS[0], "\n").replace(MARKS[1], "\n")
              .split("<|im_start|>"))
    tokenizer.train_from_iterator((p.replace("<|im_end|>", "").replace("<|endoftext|>", "")
                                   for p in pieces), trainer)
    return tokenizer


def save(tokenizer, folder):
    """Writes the files; the marks get the first ids after the three special tokens."""
    data = json.loads(tokenizer.to_str())
    order = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    assert order[:3] == SPECIAL
    # the last merges make room for the two marks
    spare = max(0, len(order) + len(MARKS) - VOCAB)
    merges = data["model"]["merges"]
    if spare:
        dropped = {"".join(m) for m in merges[-spare:]}
        data["model"]["merges"] = merges[:-spare]
        order = [t for t in order if t not in dropped]
    order = SPECIAL + MARKS + order[3:]
    data["model"]["vocab"] = {t: i for i, t in enumerate(order)}
    data["added_tokens"] = [
        {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": t in SPECIAL} for i, t in enumerate(SPECIAL + MARKS)]
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, ensure_ascii=False, indent=1)
    Tokenizer.from_str(text)
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")

    template = pathlib.Path(__file__).with_name("chat_template.jinja").read_text("utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT,
        "add_bos_token": False, "add_prefix_space": False, "bos_token": None,
        "eos_token": SPECIAL[2], "pad_token": SPECIAL[0], "unk_token": None,
        "clean_up_tokenization_spaces": False, "split_special_tokens": False,
        "additional_special_tokens": SPECIAL[1:],
        "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"}
                                 for t in data["added_tokens"]},
        "chat_template": template,
    }
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json",
               {"eos_token": SPECIAL[2], "pad_token": SPECIAL[0],
                "additional_special_tokens": SPECIAL[1:]})


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def make(folder):
    split = Split()
    documents = [d for i in range(8) for d in grammar.chunk(SEED, i, 4096, split)]
    save(train(documents), pathlib.Path(folder))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(sys.argv[1])
