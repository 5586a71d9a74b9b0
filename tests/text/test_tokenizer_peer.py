"""The tokenizer against the tokenizers package, on random and hostile strings.

For each family of tests/golden/tokenizers: strings drawn by seed (all of Unicode, long runs, added
tokens in odd places, ill-formed bytes), encoded and decoded by both. Ids and texts must be equal.
Ill-formed bytes reach the package as bytes.decode("utf-8", "replace") makes them.

PAGODA_BUILD_DIR names the build folder (default build-gcc), PAGODA_PEER_SEED another seed,
PAGODA_PEER_STRINGS another number of strings for each family.
"""

import json
import os
import pathlib
import random
import struct
import subprocess

import pytest
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PAGODA_BUILD_DIR", ROOT / "build-gcc"))
SEED = int(os.environ.get("PAGODA_PEER_SEED", "1"))
STRINGS = int(os.environ.get("PAGODA_PEER_STRINGS", "100000"))
FAMILIES_AT = ROOT / "tests" / "golden" / "tokenizers"
FAMILIES = ["gpt2", "llama3", "qwen2", "llama2", "gemma"]

SCRAPS = (
    [" "] * 12
    + ["\n", "\n", "\r", "\r\n", "\t", "  ", "   ", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\0"]
    + ["\u00a0", "\u1680", "\u180e", "\u2003", "\u200b", "\u200d", "\u2028", "\u2029", "\u202f"]
    + ["\u3000", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "\u2581", "\u2581\u2581", "\u0120"]
    + ["'", "'s", "'S", "'t", "'re", "'RE", "'ve", "'vE", "'m", "'ll", "'lL", "'d", "'\u017f", "''"]
    + ["\u2019s", "\u017f", "\u212a", "\u0130", "\u0131", "\u03c2", "\u00df", "\ufb01", "\u01c5"]
    + ["0", "7", "12", "345", "6789", "\u0663", "\u096f", "\u2167", "\u00b2", "\u00bd", "\u4e09"]
    + [".", ",", "!", "?!", "...", "_", "-", "--", "/"]
    + ["\\", "(", ")", "[", "]", "{", "}", "<", ">"]
    + ["#", "$", "%", "^", "&", "*", "+", "="]
    + ["|", "~", "`", '"', ":", ";", "@", "\u00a1", "\u2014"]
    + ["a", "b", "e", "I", "A", "the", " the"]
    + ["The", "keeper", "lantern", "ing", "ed", "un", "WORLD"]
    + ["don", "walks", "pagodahouse", "unreachable", "zebra", "kiwi", "abcdefg", "bc", "tool", "x"]
    + ["e\u0301", "\u00e9", "\u0301", "\u0323", "\u0344", "\u1e9b", "\u0327\u0301", "q\u0307\u0323"]
    + ["\u1100", "\u1161", "\u11a8", "\uac00", "\u212b", "\u0958", "\ufb1d", "\U0001d15e", "\u0345"]
    + ["\u6d77", "\u5c0f\u5854", "\u3053\u3093"]
    + ["\ud55c\uad6d", "\u043c\u0438\u0440", "\u0e2b\u0e49"]
    + ["\u0628\u064a", "\u05d1\u05b0", "\u0915\u094d\u0937", "\U00020bb7", "\U0001d54f", "\u10d0"]
    + ["\U0001f642", "\u2764\ufe0f"]
    + [ "\U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea", "\u0928"]
    + ["<", "<0x", "<0x41>", "<0xE2>", "<|", "|>", "<s", "</s", "<|endoftext", "\ud7a3", "\ue000"]
)
BYTES = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x99", b"\xed\xa0\x80", b"\xc0\xaf", b"\x80"]
BYTES += [b"\xf4\x90\x80\x80", b"\xe0\x9f\xbf", b"\xfe\xfe", b"\xf8\x88\x80\x80\x80", b"\xed\xbf"]


def any_char(rng):
    """A scalar value: half of them from the lower planes' busy parts."""
    c = rng.randrange(0x110000) if rng.random() < 0.4 else rng.randrange(0x3400)
    return chr(c) if not 0xD800 <= c < 0xE000 else "\ufffd"


def marks(rng):
    """A letter under a heap of marks in no order."""
    pool = [chr(c) for c in range(0x300, 0x370)] + ["\u1ab0", "\u20d0", "\u3099", "\u05b4"]
    return rng.choice("aeiouqAEIOU\u0915\u3042\u6d77 ") + "".join(
        rng.choice(pool) for _ in range(rng.randrange(1, 9))
    )


def token_part(rng, contents):
    """An added token, whole, cut, doubled, glued to something or in another case."""
    c = rng.choice(contents)
    kind = rng.randrange(8)
    if kind == 0:
        return c[: rng.randrange(len(c) + 1)]
    if kind == 1:
        return c[rng.randrange(len(c)) :]
    if kind == 2:
        return c + c
    if kind == 3:
        return c.upper()
    if kind == 4:
        return rng.choice(["x", "_", "7", "\u00e9", " ", "\n", "\u200d", "\u3000"]) + c
    if kind == 5:
        return c + rng.choice(["x", "_", "7", "\u0301", " \t ", "\n\n", "\u200c", "\u00a0"])
    return c


def long_run(rng, contents):
    """One thing many times."""
    what = rng.choice([rng.choice(SCRAPS), any_char(rng), rng.choice(contents)])
    return what * rng.randrange(2, 1 + 1500 // len(what.encode("utf-8", "replace")))


def draw(rng, contents):
    """One string as bytes."""
    kind = rng.random()
    if kind < 0.02:
        return long_run(rng, contents).encode()
    n = rng.randrange(1, 14)
    if kind < 0.12:
        return "".join([any_char(rng) for _ in range(n)]).encode()
    if kind < 0.20:
        parts = [rng.choice([b"a", b" ", b"\xe2\x96\x81", bytes([rng.randrange(256)])] + BYTES)]
        parts += [rng.choice(BYTES + [rng.choice(SCRAPS).encode()]) for _ in range(n)]
        return b"".join(parts)
    parts = []
    for _ in range(n):
        what = rng.random()
        if what < 0.75:
            parts.append(rng.choice(SCRAPS))
        elif what < 0.88:
            parts.append(token_part(rng, contents))
        elif what < 0.95:
            parts.append(any_char(rng))
        else:
            parts.append(marks(rng))
    return "".join(parts).encode()


def all_of_unicode(marks):
    """Every scalar value between letters, digits, spaces and, where they count, marks."""
    scalars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    behind = "\u0345" if marks else ""
    for i in range(0, len(scalars), 32):
        yield "".join(f"a{c} {c}1{behind}{c}" for c in scalars[i : i + 32]).encode()


def split_model(family):
    """The family's parts before a model that shows where words end: no merges, and another id for
    the last byte of a word."""
    content = json.loads((FAMILIES_AT / family / "tokenizer.json").read_text("utf-8"))
    chars = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    content["added_tokens"], content["post_processor"] = [], None
    content["model"] = {
        "type": "BPE",
        "end_of_word_suffix": "</w>",
        "vocab": {c: i for i, c in enumerate(chars + [c + "</w>" for c in chars])},
        "merges": [],
    }
    return content


def random_ids(rng, n_ids):
    """Ids in no order, of which many cut characters."""
    top = rng.choice([300, n_ids, n_ids + 3])
    return [rng.randrange(top) for _ in range(rng.randrange(1, 16))]


def ask(folder, records):
    """The driver's answers to (kind, payload) records: [ids,] text, text without special tokens."""
    sent = bytearray()
    for kind, value in records:
        if kind == "e":
            sent += struct.pack("<cI", b"e", len(value)) + value
        else:
            sent += struct.pack(f"<cI{len(value)}i", b"d", len(value), *value)
    driver = BUILD / "bin" / "tests" / "peer_driver"
    got = subprocess.run([driver, folder], input=bytes(sent), stdout=subprocess.PIPE, check=True)
    data, at = got.stdout, 0

    def take(item):
        nonlocal at
        (n,) = struct.unpack_from("<I", data, at)
        start, at = at + 4, at + 4 + n * item
        return data[start:at]

    out = []
    for kind, _ in records:
        ids = take(4) if kind == "e" else None
        out.append((ids, take(1), take(1)))
    assert at == len(data)
    return out


def compare(folder, peer, records):
    """Both sides on all records; at most five differences are shown."""
    texts = [value.decode("utf-8", "replace") for kind, value in records if kind == "e"]
    encoded = iter(peer.encode_batch(texts, add_special_tokens=True))
    ids = [next(encoded).ids if kind == "e" else value for kind, value in records]
    whole = peer.decode_batch(ids, skip_special_tokens=False)
    skipped = peer.decode_batch(ids, skip_special_tokens=True)
    wrong = []
    for i, (got_ids, got_whole, got_skipped) in enumerate(ask(folder, records)):
        want_ids = struct.pack(f"<{len(ids[i])}i", *ids[i])
        if got_ids is not None and got_ids != want_ids:
            mine = list(struct.unpack(f"<{len(got_ids) // 4}i", got_ids))
            wrong.append(f"encode {records[i][1]!r}:\n want {ids[i]}\n got  {mine}")
        elif got_whole != whole[i].encode():
            wrong.append(f"decode {ids[i]}:\n want {whole[i].encode()!r}\n got  {got_whole!r}")
        elif got_skipped != skipped[i].encode():
            wrong.append(f"decode {ids[i]} without special tokens:\n want {skipped[i]!r}")
    assert not wrong, f"{len(wrong)} of {len(records)} differ\n" + "\n".join(wrong[:5])


def random_records(family, contents, n_ids):
    rng = random.Random(f"{SEED} {family}")
    texts = [draw(rng, contents) for _ in range(STRINGS)]
    records = [("e", text) for text in texts]
    # texts of some kilobytes, for words are remembered there
    records += [("e", b" ".join(texts[i : i + 200])) for i in range(0, min(STRINGS, 6000), 200)]
    return records + [("d", random_ids(rng, n_ids)) for _ in range(STRINGS // 10)]


@pytest.mark.parametrize("family", FAMILIES)
def test_random_strings(family):
    folder = FAMILIES_AT / family
    peer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    contents = [t.content for t in peer.get_added_tokens_decoder().values()]
    compare(folder, peer, random_records(family, contents, peer.get_vocab_size()))


@pytest.mark.parametrize("family", ["gpt2", "llama3", "qwen2"])
def test_all_of_unicode(family, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(split_model(family)))
    peer = tokenizers.Tokenizer.from_file(str(path))
    records = [("e", text) for text in all_of_unicode(family == "qwen2")]
    records += random_records(family, ["x"], peer.get_vocab_size())[: min(STRINGS // 5, 12000)]
    compare(tmp_path, peer, records)
