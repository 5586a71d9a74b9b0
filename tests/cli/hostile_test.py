"""Model folders made to hurt: each is refused with status 2 and a sentence that names the file, in
little time and memory.

    hostile_test.py PAGODA SOURCE_DIR PLUGIN_DIR
"""

import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PAGODA, SOURCE, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
NANO = SOURCE / "models" / "nano"
TINY = SOURCE / "tests" / "golden" / "models" / "llama-default"
SECONDS = 60  # a sanitized program on a busy machine; plain it is far below one
SANITIZED = any(key in os.environ for key in ("ASAN_OPTIONS", "TSAN_OPTIONS"))


def limit():
    """Two gigabytes of address space; a sanitizer's shadow needs more than any machine has."""
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


def pagoda(*args, stdin=b""):
    keep = ("PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    env = {key: os.environ[key] for key in keep if key in os.environ}
    done = subprocess.run(
        [PAGODA, *map(str, args)],
        input=stdin,
        capture_output=True,
        env={**env, "PAGODA_PLUGIN_PATH": PLUGINS},
        timeout=SECONDS,
        preexec_fn=limit,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def safetensors(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def many(n):
    return {f"t{i}": tensor("U8", [1], i, i + 1) for i in range(n)}


HUGE = 1 << 62
WEIGHTS = {
    "empty file": b"",
    "no header": b"\0\0\0",
    "zeros": bytes(64),
    "header beyond the file": struct.pack("<Q", 1000) + b"{}",
    "huge header": struct.pack("<Q", (1 << 64) - 1) + b"{}",
    "header of 2^63": struct.pack("<Q", 1 << 63) + bytes(100),
    "no JSON": safetensors(b"{'a': 1}"),
    "no UTF-8": safetensors(b'{"\xff": 1}'),
    "a list": safetensors(b"[]"),
    "deep": safetensors(b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}"),
    "hole": safetensors({"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 8, 12)}, bytes(12)),
    "overlap": safetensors(
        {"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, bytes(12)
    ),
    "bytes behind": safetensors({"a": tensor("F32", [1], 0, 4)}, bytes(9)),
    "cut": safetensors({"a": tensor("F32", [100], 0, 400)}, bytes(399)),
    "beyond": safetensors({"a": tensor("F32", [1], HUGE, HUGE + 4)}, bytes(4)),
    "backwards": safetensors({"a": tensor("F32", [1], 4, 0)}, bytes(4)),
    "negative offset": safetensors({"a": tensor("F32", [1], -4, 0)}, bytes(4)),
    "offset above 64 bits": safetensors({"a": tensor("F32", [1], 1 << 70, 1 << 71)}, bytes(4)),
    "shape overflows": safetensors({"a": tensor("F32", [1 << 32, 1 << 32, 4], 0, 4)}, bytes(4)),
    "negative shape": safetensors({"a": tensor("F32", [-1, -1], 0, 4)}, bytes(4)),
    "shape is text": safetensors({"a": tensor("F32", "4", 0, 4)}, bytes(4)),
    "too many dimensions": safetensors({"a": tensor("U8", [1] * 1000, 0, 1)}, bytes(1)),
    "unknown type": safetensors({"a": tensor("Q9_Z", [1], 0, 1)}, bytes(1)),
    "one name twice": safetensors(
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
        bytes(2),
    ),
    "too many tensors": safetensors(many(200001), bytes(200001)),
    "a float where bytes are counted": safetensors({"a": tensor("U8", [1], 0, 1.5)}, bytes(2)),
}

INDEXES = {
    "leaves the folder": {"weight_map": {"a": "../../../../etc/passwd"}},
    "absolute": {"weight_map": {"a": "/etc/passwd"}},
    "no such file": {"weight_map": {"a": "model-00009.safetensors"}},
    "a number": {"weight_map": {"a": 7}},
    "no map": {"weight_map": [["a", "b"]]},
    "too many files": {"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(5000)}},
}

CONFIGS = {
    "hidden_size": [0, -1, 1 << 40, 1e300, "big", None, [], 1.5],
    "num_hidden_layers": [0, -1, 1 << 31, 1 << 63, "x"],
    "num_attention_heads": [0, -7, 1 << 40, 3.5],
    "num_key_value_heads": [0, -1, 7, 1 << 33],
    "head_dim": [-2, 3, 1 << 20],
    "vocab_size": [0, -1, 1 << 50],
    "intermediate_size": [0, 1 << 60],
    "max_position_embeddings": [0, -1, 1 << 60],
    "rms_norm_eps": [-1.0, "small"],
    "eos_token_id": [-5, 1 << 40, [1] * 10000, "x"],
    "rope_scaling": [7, {"rope_type": "spiral"}, {"rope_type": "linear", "factor": -1}],
    "architectures": [[], ["x" * 100000], [7], "LlamaForCausalLM"],
    "quantization_config": [{"quant_method": "\u0000"}],
}
CONFIG_TEXTS = {
    "empty": b"",
    "cut": b'{"hidden_size": 12',
    "deep": b'{"a":' * 100000 + b"1" + b"}" * 100000,
    "deep list": b"[" * 1000000,
    "no UTF-8": b'{"architectures": ["\xc3\x28"]}',
    "a list": b"[1]",
    "number": b"1" * 100000,
}

MODEL = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}


TOKENIZERS = {
    "no vocab": {"model": {"type": "BPE", "merges": []}},
    "negative id": {"model": {**MODEL, "vocab": {"a": -1}}},
    "huge id": {"model": {**MODEL, "vocab": {"a": 1 << 60}}},
    "id is text": {"model": {**MODEL, "vocab": {"a": "0"}}},
    "merge of nothing": {"model": {**MODEL, "merges": ["a q"]}},
    "merge is a number": {"model": {**MODEL, "merges": [1]}},
    "unknown kind": {"model": {"type": "Oracle"}},
    "bad pattern": {
        "model": MODEL,
        "pre_tokenizer": split("(" * 5000),
    },
    "long pattern": {
        "model": MODEL,
        "pre_tokenizer": split("a" * 70000),
    },
    "long added token": {"model": MODEL, "added_tokens": [{"id": 3, "content": "x" * 100000}]},
    "template of nothing": {
        "model": MODEL,
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q"}}]},
    },
}


class Hostile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model = pathlib.Path(self.folder.name, "model")

    def tearDown(self):
        self.folder.cleanup()

    def make(self, base, **files):
        shutil.rmtree(self.model, ignore_errors=True)
        self.model.mkdir()
        for path in base.iterdir():
            if path.name not in files and not path.name.startswith("golden"):
                (self.model / path.name).symlink_to(path)
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            (self.model / name).write_bytes(data)

    def refuse(self, args, word, stdin=b""):
        status, out, err = pagoda(*args, stdin=stdin)
        self.assertEqual(status, 2, err[-2000:])
        self.assertEqual(out, "")
        self.assertIn(word, err)
        self.assertLess(len(err), 4000)
        for sign in ("Sanitizer", "runtime error", "assert"):
            self.assertNotIn(sign, err)

    def test_weights(self):
        for name, data in WEIGHTS.items():
            with self.subTest(name):
                self.make(TINY, **{"model.safetensors": data})
                self.refuse(["run", self.model, "-p", "x"], "model.safetensors")

    def test_indexes(self):
        for name, index in INDEXES.items():
            with self.subTest(name):
                self.make(TINY, **{"model.safetensors.index.json": index})
                (self.model / "model.safetensors").unlink()
                self.refuse(["run", self.model, "-p", "x"], "safetensors")

    def test_configs(self):
        good = json.loads((TINY / "config.json").read_text())
        for key, values in CONFIGS.items():
            for value in values:
                with self.subTest(f"{key} {str(value)[:40]}"):
                    self.make(TINY, **{"config.json": {**good, key: value}})
                    self.refuse(["run", self.model, "-p", "x"], "config.json")
        for name, text in CONFIG_TEXTS.items():
            with self.subTest(name):
                self.make(TINY, **{"config.json": text})
                self.refuse(["run", self.model, "-p", "x"], "config.json")

    def test_tokenizers(self):
        for name, content in TOKENIZERS.items():
            with self.subTest(name):
                self.make(NANO, **{"tokenizer.json": content})
                self.refuse(["tokenize", self.model], "tokenizer.json", stdin=b"abc")
        for name, text in CONFIG_TEXTS.items():
            with self.subTest(name):
                self.make(NANO, **{"tokenizer.json": text})
                self.refuse(["run", self.model, "-p", "x"], "tokenizer.json")

    def test_a_slow_pattern_ends(self):
        self.make(NANO, **{"tokenizer.json": {"model": MODEL, "pre_tokenizer": split("(a+)+$")}})
        self.refuse(["tokenize", self.model], "steps", stdin=b"a" * 200 + b"b")

    def test_templates(self):
        for text in ("{% for %}", "{{ 1 | nothing }}", "{{" + "(" * 5000, "{% include 'x' %}"):
            with self.subTest(text[:20]):
                self.make(NANO, **{"chat_template.jinja": text.encode()})
                self.refuse(["run", self.model, "--chat", "-p", "x"], "template")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
