"""GGUF files through the program: written, looked at, run, refused.

    gguf_test.py PAGODA SOURCE_DIR PLUGIN_DIR
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

PAGODA, SOURCE, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
NANO = SOURCE / "models" / "nano"
GOLDEN = SOURCE / "tests" / "golden" / "gguf"
STORY = ["-p", "Once upon a time", "-n", "32", "-t", "0", "--device", "cpu{act=f32}",
         "--kv-cache-dtype", "f32", "--json"]
TEXT = "Once upon a time, 12 cats\n\nsang: <|im_start|>\u00e9\u4e2d! it's <tool_call>{}"


def pagoda(*args, stdin=""):
    """Runs the program; returns (status, stdout, stderr)."""
    env = {key: os.environ[key] for key in os.environ if key.endswith("SAN_OPTIONS")}
    env |= {"PATH": os.environ["PATH"], "PAGODA_PLUGIN_PATH": PLUGINS}
    done = subprocess.run([PAGODA, *map(str, args)], input=stdin.encode(), capture_output=True,
                          env=env, timeout=300)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.files = {}
        for kind in ("f32", "q8_0", "q4_k"):
            cls.files[kind] = pathlib.Path(cls.folder.name, f"nano-{kind}.gguf")
            status, _, err = pagoda("quantize", NANO, cls.files[kind], "--type", kind)
            assert status == 0, err

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def good(self, *args, stdin=""):
        status, out, err = pagoda(*args, stdin=stdin)
        self.assertEqual(status, 0, err)
        return out

    def refuse(self, args, *words):
        status, out, err = pagoda(*args)
        self.assertEqual(status, 2, err)
        self.assertEqual(out, "")
        for word in words:
            self.assertIn(word, err)

    def test_text_is_the_same(self):
        own = self.good("tokenize", NANO, "--json", stdin=TEXT)
        self.assertEqual(self.good("tokenize", self.files["q4_k"], "--json", stdin=TEXT), own)
        back = self.good("detokenize", self.files["q4_k"], stdin=own)
        self.assertEqual(back.rstrip("\n"), TEXT)

    def test_answers(self):
        # The same numbers give the same tokens, also behind the template.
        for more in ([], ["--chat"]):
            own = json.loads(self.good("run", NANO, *STORY, *more))
            file = json.loads(self.good("run", self.files["f32"], *STORY, *more))
            self.assertEqual(file["token_ids"], own["token_ids"])
            self.assertEqual(file["usage"], own["usage"])

    def test_quantized_while_loading(self):
        # Blocks are the same whether they come from the file or are made on the way.
        for kind in ("q8_0", "q4_k"):
            file = json.loads(self.good("run", self.files[kind], *STORY))
            made = json.loads(self.good("run", NANO, *STORY, "--quant", kind))
            self.assertEqual(made["token_ids"], file["token_ids"])

    def cases(self):
        lines = (GOLDEN / "pieces" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def check_cases(self, model):
        for case in self.cases():
            ids = json.loads(self.good("tokenize", model, "--json", stdin=case["text"]))
            self.assertEqual(ids, case["ids"], case["text"])

    def pieces_model(self, name, tokenizer):
        """A folder with a model of one layer, of zeros, and that tokenizer.json."""
        folder = pathlib.Path(self.folder.name, name)
        folder.mkdir()
        n = 1 + max(t["id"] for t in tokenizer["added_tokens"])
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": n,
                  "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
                  "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32,
                  "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "rope_theta": 10000.0,
                  "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
                  "torch_dtype": "float32"}
        one = "model.layers.0."
        shapes = {"model.embed_tokens.weight": [n, 32], "model.norm.weight": [32],
                  one + "input_layernorm.weight": [32],
                  one + "post_attention_layernorm.weight": [32]}
        shapes |= {f"{one}{m}_proj.weight": [32, 32]
                   for m in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o",
                             "mlp.gate", "mlp.up", "mlp.down")}
        header, at = {}, 0
        for tensor, shape in shapes.items():
            size = 4 * shape[0] * (shape[1] if len(shape) == 2 else 1)
            header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        return folder

    def test_pieces(self):
        # SentencePiece: read from a file of the gguf package, and written; ids are those of the
        # tokenizers package.
        tokenizer = json.loads((GOLDEN / "pieces" / "tokenizer.json").read_text(encoding="utf-8"))
        self.check_cases(GOLDEN / "pieces" / "pieces.gguf")
        to = pathlib.Path(self.folder.name, "pieces.gguf")
        self.good("quantize", self.pieces_model("pieces", tokenizer), to, "--type", "q8_0")
        self.check_cases(to)
        merges = tokenizer["model"]["merges"]
        for name, wrong in (("fewer", merges[:-1]), ("mixed", merges[::2] + merges[1::2])):
            tokenizer["model"]["merges"] = wrong
            self.refuse(["quantize", self.pieces_model(name, tokenizer), to], "SentencePiece")

    def test_inspect_and_plan(self):
        seen = json.loads(self.good("inspect", self.files["q4_k"], "--json"))
        self.assertEqual({t["dtype"]: t["count"] for t in seen["tensors"]},
                         {"Q4_K": 35, "Q6_K": 1, "F32": 11})
        self.assertEqual(seen["unsupported"], [])
        self.assertTrue(seen["template"])
        self.assertEqual(seen["tokenizer"]["tokens"], 1536)
        planned = json.loads(self.good("plan", self.files["q4_k"], "--device", "cpu", "--json"))
        self.assertEqual(planned["dtype"], "q4_k")
        self.assertLess(planned["memory"]["weights"], 3 << 20)  # 12.7 MB as f32

    def change(self, name, at, new):
        """A copy of a golden file with bytes of a tensor's info replaced, `at` behind its name."""
        raw = bytearray((GOLDEN / "qwen2.gguf").read_bytes())
        place = raw.index(struct.pack("<Q", len(name)) + name) + 8 + len(name) + at
        raw[place:place + len(new)] = new
        to = pathlib.Path(self.folder.name, "changed.gguf")
        to.write_bytes(raw)
        return to

    def test_unsupported_type(self):
        to = self.change(b"blk.0.ffn_up.weight", 20, struct.pack("<I", 24))
        self.refuse(["run", to, "-p", "x"], "blk.0.ffn_up.weight", "I8", "Q4_0", "F16")
        seen = json.loads(self.good("inspect", to, "--json"))
        self.assertIn("blk.0.ffn_up.weight", seen["unsupported"][0]["reason"])
        self.assertIn("I8", {t["dtype"] for t in seen["tensors"]})

    def test_damage(self):
        to = self.change(b"blk.0.ffn_up.weight", 4, struct.pack("<Q", 1 << 60))
        self.refuse(["run", to, "-p", "x"], "blk.0.ffn_up.weight")
        cut = pathlib.Path(self.folder.name, "cut.gguf")
        cut.write_bytes((GOLDEN / "qwen2.gguf").read_bytes()[:-100000])
        self.refuse(["run", cut, "-p", "x"], "cut short")
        raw = bytearray(self.files["q8_0"].read_bytes())
        at = len(raw) - 2 * 256 * 4 - 34  # the last block before two norms of 256 numbers
        raw[at:at + 2] = b"\x00\x7e"  # its scale: no number
        nan = pathlib.Path(self.folder.name, "nan.gguf")
        nan.write_bytes(raw)
        status, _, err = pagoda("run", nan, "-p", "x", "--device", "cpu")
        self.assertEqual(status, 2, err)
        self.assertIn("no finite number", err)
        part = pathlib.Path(self.folder.name, "llama-default-00001-of-00003.gguf")
        part.write_bytes((GOLDEN / part.name).read_bytes())
        self.refuse(["run", part, "-p", "x"], "part 2 of 3", "00002-of-00003")

    def test_wrong_use(self):
        self.refuse(["run", NANO, "-p", "x", "--quant", "q9"], "q9", "q8_0", "int8")
        self.refuse(["run", self.files["q8_0"], "-p", "x", "--quant", "q4_0"], "q8_0")
        self.refuse(["quantize", NANO], "path")
        self.refuse(["quantize", NANO, "x.gguf", "--type", "int8"], "int8", "q4_k")
        self.refuse(["quantize", NANO, "x"], ".gguf")
        self.refuse(["run", "nothing.gguf", "-p", "x"], "no such file")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
