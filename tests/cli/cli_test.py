"""The program as people and scripts use it: exit status, sentences, JSON, files.

    cli_test.py PAGODA SOURCE_DIR PLUGIN_DIR
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PAGODA, SOURCE, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
NANO = SOURCE / "models" / "nano"
TINY = SOURCE / "tests" / "golden" / "models" / "llama-default"


def pagoda(*args, stdin=b"", env=None, timeout=120):
    """Runs the program; returns (status, stdout, stderr)."""
    full = {"PATH": os.environ["PATH"], "PAGODA_PLUGIN_PATH": PLUGINS, **(env or {})}
    for key in ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        if key in os.environ:
            full[key] = os.environ[key]
    done = subprocess.run(
        [PAGODA, *map(str, args)], input=stdin, capture_output=True, env=full, timeout=timeout
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Layers(unittest.TestCase):
    """Layers around a device, and a device that is lost, from outside."""

    ASK = ("run", NANO, "-p", "Once upon a time", "-n", "12", "-t", "0.7", "--seed", "4")

    def right(self):
        status, out, err = pagoda(*self.ASK, "--device", "cpu")
        self.assertEqual(status, 0, err)
        return out

    def test_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.json"
            status, out, err = pagoda(*self.ASK, "--device", f"trace{{file={path}}}(check(cpu))")
            self.assertEqual((status, out), (0, self.right()), err)
            events = json.loads(path.read_text())["traceEvents"]
        steps = [e for e in events if e["name"] == "head_sample"]
        self.assertEqual(len(steps), 12)
        self.assertTrue(all(e["dur"] > 0 and e["args"]["bytes"] > 0 for e in steps))

    def test_lost_and_standby(self):
        lost = "fault{op=head_sample;lose_nth=5}(cpu)"
        status, out, err = pagoda(*self.ASK, "--device", lost)
        self.assertEqual((status, out), (0, self.right()), err)
        self.assertEqual(err.count("is lost"), 2)
        gone = "fault{op=head_sample;lose_nth=5;reopen=fail}(cpu)"
        status, out, err = pagoda(*self.ASK, "--device", gone)
        self.assertEqual(status, 1)
        self.assertIn("the device is gone", err)
        status, out, err = pagoda(*self.ASK, "--device", gone, env={"PAGODA_STANDBY": "cpu"})
        self.assertEqual((status, out), (0, self.right()), err)
        self.assertIn("device cpu:0 is open", err)

    def test_lists(self):
        status, out, err = pagoda("plugins", "--json")
        roles = {p["kind"]: p["role"] for p in json.loads(out)["plugins"]}
        self.assertEqual(status, 0, err)
        self.assertEqual([roles[k] for k in ("check", "trace", "fault")], ["layer"] * 3)
        status, out, err = pagoda("devices", "--explain")
        self.assertEqual(status, 0, err)
        self.assertIn("a layer, not a device", out)


class WrongUse(unittest.TestCase):
    """Exit status 2 and a sentence that names what and what is allowed, before any long work."""

    def refuse(self, args, *words, **kwargs):
        status, out, err = pagoda(*args, **kwargs)
        self.assertEqual(status, 2, err)
        self.assertEqual(out, "")
        for word in words:
            self.assertIn(word, err)

    def test_commands_and_flags(self):
        self.refuse(["runn"], "runn", "did you mean run?")
        self.refuse(["quantize"], "quantize", "GGUF")
        self.refuse(["run", "--devic", "cpu"], "--devic", "--device")
        self.refuse(["run", "-p"], "-p", "TEXT")
        self.refuse(["run", "-z"], "-z")
        self.refuse(["run"], "--prompt")
        self.refuse(["run", "a", "b", "-p", "x"], '"b"')
        self.refuse(["run", "-p", ""], "empty")
        self.refuse(["run", "-p", "x", "-n", "0"], "--max-tokens", '"0"', "from 1")
        self.refuse(["run", "-p", "x", "-n", "12x"], "--max-tokens", "12x")
        self.refuse(["run", "-p", "x", "--top-p", "1.5"], "--top-p", "1.5", "from 0 to 1")
        self.refuse(["run", "-p", "x", "--temperature", "nan"], "--temperature", "nan")
        self.refuse(["run", "-p", "x", "--seed", "-1"], "--seed", "-1")
        self.refuse(["run", "-p", "x", "--answers", "200"], "--answers", "200", "from 1 to 128")
        self.refuse(["run", "-p", "x", "--presence-penalty", "3"], "--presence-penalty", "3")
        self.refuse(["run", NANO, "-p", "x", "--stop", ""], "stop[0]", "0 bytes")
        self.refuse(["run", NANO, "-p", "x", "--bad-word", " "], "bad_words[0]", "blank")
        self.refuse(["run", "-p", "x", "-f", "y"], "--prompt", "--file")
        self.refuse(["run", "-f", "/no/such/file"], "/no/such/file")
        self.refuse(["batch", "-i", "x"], "--output")
        self.refuse(["plugins", "acme"], "acme")

    def test_environment_and_config(self):
        self.refuse(["run", "-p", "x"], "PAGODA_MAX_TOKENS", env={"PAGODA_MAX_TOKENS": "many"})
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "config.json")
            config.write_text('{"max-tokenz": 3}')
            self.refuse(["run", "-p", "x", "--config", config], "max-tokenz", "max-tokens")
            config.write_text('{"max-tokens": [3]}')
            self.refuse(["run", "-p", "x", "--config", config], "max-tokens", "array")
            config.write_text("{")
            self.refuse(["run", "-p", "x", "--config", config], str(config))

    def test_device(self):
        run = ["run", NANO, "-p", "x", "--device"]
        self.refuse([*run, "warp"], "warp", "cpu")
        self.refuse([*run, "cpu:9"], "cpu")
        self.refuse([*run, "cpu:x"], "cpu:x")
        self.refuse([*run, "cpu{isa=mmx}"], "isa", "mmx")
        self.refuse([*run, "cpu{color=red}"], "color")

    def test_sizes(self):
        run = ["run", NANO, "-p", "x"]
        self.refuse([*run, "--memory", "200KiB"], "does not fit", "bytes")
        self.refuse([*run, "--memory", "much"], "much")
        self.refuse([*run, "--num-blocks", "1"], "--num-blocks", '"1"')
        self.refuse([*run, "--num-blocks", "3", "--max-model-len", "500"], "max-model-len")
        self.refuse([*run, "--max-model-len", "999999"], "max-model-len", "999999")
        self.refuse([*run, "--kv-cache-dtype", "fp3"], "fp3", "bf16")
        self.refuse(["run", NANO, "-p", "word " * 3000], "prompt", "tokens")


class WrongModel(unittest.TestCase):
    """Missing, damaged and unknown models."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model = pathlib.Path(self.folder.name, "model")
        shutil.copytree(TINY, self.model)

    def tearDown(self):
        self.folder.cleanup()

    def refuse(self, *words, model=None, env=None):
        status, out, err = pagoda("run", model or self.model, "-p", "x", env=env)
        self.assertEqual(status, 2, err)
        self.assertEqual(out, "")
        for word in words:
            self.assertIn(word, err)

    def edit_config(self, **changes):
        path = self.model / "config.json"
        config = json.loads(path.read_text())
        config.update(changes)
        path.write_text(json.dumps(config))

    def test_names(self):
        self.refuse("/no/such", model="/no/such")
        self.refuse("gguf", model="model.gguf")
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": self.folder.name}
        self.refuse("org/name", "HF_HUB_OFFLINE", model="org/name", env=offline)

    def test_config(self):
        self.edit_config(architectures=["FalconForCausalLM"])
        self.refuse("FalconForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM")
        self.edit_config(architectures=["LlamaForCausalLM"], hidden_size=-3)
        self.refuse("hidden_size", "-3")
        (self.model / "config.json").write_text("{")
        self.refuse("config.json")
        (self.model / "config.json").unlink()
        self.refuse("config.json")

    def test_quantized(self):
        self.edit_config(quantization_config={"quant_method": "awq"})
        self.refuse("awq")

    def weights(self):
        path = self.model / "model.safetensors"
        data = path.read_bytes()
        (n,) = struct.unpack("<Q", data[:8])
        return path, json.loads(data[8 : 8 + n]), data[8 + n :]

    def write(self, path, header, body):
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + body)

    def test_torn_weights(self):
        path, _, _ = self.weights()
        path.write_bytes(path.read_bytes()[:-100])
        self.refuse("model.safetensors")
        path.write_bytes(b"\xff" * 40)
        self.refuse("model.safetensors")
        path.unlink()
        self.refuse("safetensors")

    def test_missing_tensor(self):
        path, header, body = self.weights()
        name = "model.layers.1.mlp.up_proj.weight"
        header["another"] = header.pop(name)
        self.write(path, header, body)
        self.refuse(name)

    def test_wrong_shape_and_dtype(self):
        path, header, body = self.weights()
        name = "model.layers.0.self_attn.o_proj.weight"
        tensor = header[name]
        tensor["shape"] = [tensor["shape"][0] * 2, tensor["shape"][1] // 2]
        self.write(path, header, body)
        self.refuse(name)
        tensor["shape"] = [tensor["shape"][0] // 2, tensor["shape"][1] * 2]
        tensor["dtype"] = "I32"
        self.write(path, header, body)
        self.refuse(name, "I32")


class Commands(unittest.TestCase):
    """What works, works as said."""

    def test_run_json(self):
        args = ["run", NANO, "-p", "Once upon a time", "-n", "12", "-t", "0", "--ignore-eos",
                "--device", "cpu"]
        status, out, err = pagoda(*args, "--json")
        self.assertEqual(status, 0, err)
        answer = json.loads(out)
        self.assertEqual(answer["usage"]["completion_tokens"], 12)
        self.assertEqual(len(answer["token_ids"]), 12)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(err, "")
        status, plain, err = pagoda(*args)
        self.assertEqual(status, 0, err)
        self.assertEqual(plain, answer["text"] + "\n")
        self.assertIn("tokens/s", err)

    def test_stop_answers_and_logprobs(self):
        args = ["run", NANO, "-p", "Once upon a time", "-n", "40", "-q", "--ignore-eos"]
        whole = pagoda(*args, "-t", "0")[1]
        self.assertIn(".", whole)
        status, out, err = pagoda(*args, "-t", "0", "--stop", ".", "--stop", "zzz")
        self.assertEqual((status, out), (0, whole[: whole.index(".")] + "\n"), err)
        status, out, err = pagoda(*args, "-t", "0", "--stop", ".", "--include-stop")
        self.assertEqual((status, out), (0, whole[: whole.index(".") + 1] + "\n"), err)
        status, out, err = pagoda(*args, "-t", "0", "--bad-word", ".", "--bad-word", ",")
        self.assertEqual(status, 0, err)
        self.assertNotEqual(out, whole)
        many = [*args, "-t", "0.9", "--seed", "3", "--answers", "3"]
        status, out, err = pagoda(*many, "--stop", ".", "--logprobs", "2", "--json")
        self.assertEqual(status, 0, err)
        answers = json.loads(out)["answers"]
        self.assertEqual([a["index"] for a in answers], [0, 1, 2])
        for seed, answer in zip("345", answers):
            one = [*args, "-t", "0.9", "--seed", seed, "--stop", "."]
            self.assertEqual(pagoda(*one)[1], answer["text"] + "\n")
            self.assertEqual((answer["finish_reason"], answer["stop_reason"]), ("stop", "."))
            told = sum(row[0][1] for row in answer["logprobs"])
            self.assertAlmostEqual(answer["cumulative_logprob"], told, places=3)
            for token, row in zip(answer["token_ids"], answer["logprobs"]):
                self.assertEqual((row[0][0], len(row)), (token, 3))
        status, out, err = pagoda(*many)
        self.assertEqual((status, out.count("[")), (0, 3), err)

    def test_order_of_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "c.json")
            config.write_text('{"max-tokens": 3, "temperature": 0, "ignore-eos": true}')
            base = ["run", NANO, "-p", "a", "--json", "--config", config]

            def count(args, env=None):
                status, out, err = pagoda(*args, env=env)
                self.assertEqual(status, 0, err)
                return json.loads(out)["usage"]["completion_tokens"]

            self.assertEqual(count(base), 3)
            self.assertEqual(count(base, env={"PAGODA_MAX_TOKENS": "4"}), 4)
            self.assertEqual(count([*base, "-n", "5"], env={"PAGODA_MAX_TOKENS": "4"}), 5)

    def test_stdin_and_seed(self):
        args = ["run", NANO, "-f", "-", "-n", "20", "-q", "--temperature", "1.2", "--seed"]
        texts = [pagoda(*args, seed, stdin=b"The fox")[1] for seed in ("5", "5", "6")]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_tokenize_round_trip(self):
        text = "Ada has 12 apples; \u00e9\u4e2d\U0001f600 \n done"
        status, ids, err = pagoda("tokenize", NANO, "--no-special", stdin=text.encode())
        self.assertEqual(status, 0, err)
        status, back, err = pagoda("detokenize", NANO, stdin=ids.encode())
        self.assertEqual((status, back), (0, text), err)
        status, ids, err = pagoda("tokenize", NANO, "--json", stdin=b"")
        self.assertEqual((status, json.loads(ids)), (0, []), err)
        status, _, err = pagoda("detokenize", NANO, stdin=b"1 99999999")
        self.assertEqual(status, 2)
        self.assertIn("99999999", err)
        status, _, err = pagoda("detokenize", NANO, stdin=b"one")
        self.assertEqual(status, 2)

    def test_devices_and_plugins(self):
        status, out, err = pagoda("devices", "--json")
        self.assertEqual(status, 0, err)
        devices = {d["uri"]: d for d in json.loads(out)["devices"]}
        self.assertIn("cpu:0", devices)
        self.assertGreater(devices["cpu:0"]["memory_bytes"], 1 << 28)
        status, out, err = pagoda("devices", "--explain")
        self.assertIn("libpgd-cpu.so", out)
        status, out, err = pagoda("plugins", "--json")
        kinds = {p["kind"] for p in json.loads(out)["plugins"]}
        self.assertLessEqual({"cpu", "null"}, kinds)
        status, out, err = pagoda("plugins", "cpu")
        self.assertIn("isa", out)

    def test_null_device(self):
        args = ["run", NANO, "-p", "x", "-n", "9", "--ignore-eos", "--json", "--device"]
        status, out, err = pagoda(*args, "null{step_us=1000}")
        self.assertEqual(status, 0, err)
        answer = json.loads(out)
        self.assertEqual(answer["usage"]["completion_tokens"], 9)
        self.assertGreaterEqual(answer["timing"]["total_ms"], 9)

    def test_help(self):
        for args in (["--help"], ["run", "--help"], ["batch", "-h"], ["devices", "--help"]):
            status, out, err = pagoda(*args)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("usage: pagoda", out)
        self.assertEqual(pagoda()[0], 2)
        self.assertEqual(pagoda("--version")[1], "pagoda 0.1.0\n")


class Batch(unittest.TestCase):
    """Offline lines: answers, refusals, a torn run."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.source = pathlib.Path(self.folder.name, "in.jsonl")
        self.target = pathlib.Path(self.folder.name, "out.jsonl")

    def tearDown(self):
        self.folder.cleanup()

    def line(self, name, **body):
        url = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        return {"custom_id": name, "method": "POST", "url": url, "body": body}

    def run_batch(self, lines):
        self.source.write_text("".join(json.dumps(x) + "\n" for x in lines))
        return pagoda("batch", NANO, "-i", self.source, "-o", self.target)

    def answers(self):
        lines = [json.loads(x) for x in self.target.read_text().splitlines()]
        return {x["custom_id"]: x for x in lines}, len(lines)

    def test_answers_and_refusals(self):
        message = [{"role": "user", "content": "Say hello to Ada."}]
        status, _, err = self.run_batch(
            [
                self.line("a", prompt="Once upon", max_tokens=5, temperature=0),
                self.line("b", messages=message, max_tokens=8, temperature=0),
                self.line("c", prompt=[5, 6, 7], max_tokens=3),
                self.line("d", prompt="x", temperature=9),
                self.line("e", prompt="x", colour="red"),
                self.line("f", prompt="x " * 4000),
                self.line("g", messages=message, stream=True),
            ]
        )
        self.assertEqual(status, 0, err)
        answers, n = self.answers()
        self.assertEqual(n, 7)
        for name in "abc":
            response = answers[name]["response"]
            self.assertEqual(response["status_code"], 200)
            self.assertIsNone(answers[name]["error"])
        self.assertEqual(answers["a"]["response"]["body"]["usage"]["completion_tokens"], 5)
        self.assertEqual(answers["b"]["response"]["body"]["object"], "chat.completion")
        for name, word in (("d", "temperature"), ("e", "colour"), ("f", "prompt"), ("g", "stream")):
            response = answers[name]["response"]
            self.assertEqual(response["status_code"], 400)
            self.assertIn(word, response["body"]["error"]["message"])

    def test_sampling_fields(self):
        message = [{"role": "user", "content": "What is the capital of France?"}]
        status, _, err = self.run_batch(
            [
                self.line("a", messages=message, temperature=0, n=2, logprobs=True,
                          top_logprobs=2, stop=["."], presence_penalty=0.1, seed=1),
                self.line("b", prompt="Once upon a", temperature=0, logprobs=1, max_tokens=5,
                          allowed_token_ids=[5, 6], logit_bias={"6": 100}),
                self.line("c", prompt="x", n=200),
                self.line("d", prompt="x", logit_bias={"six": 1}),
                self.line("e", prompt="x", stop=["a"] * 17),
                self.line("f", messages=message, top_logprobs=3),
                self.line("g", prompt="x", frequency_penalty=-3),
                self.line("h", prompt="x", bad_words=["ok", 3]),
            ]
        )
        self.assertEqual(status, 0, err)
        answers, _ = self.answers()
        body = answers["a"]["response"]["body"]
        self.assertEqual([c["index"] for c in body["choices"]], [0, 1])
        tokens = 0
        for choice in body["choices"]:
            self.assertEqual(choice["message"]["content"], "The capital of France is Paris")
            self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", "."))
            content = choice["logprobs"]["content"]
            tokens += len(content)
            self.assertEqual("".join(t["token"] for t in content),
                             choice["message"]["content"] + ".")
            for token in content:
                self.assertEqual(bytes(token["bytes"]).decode(), token["token"])
                self.assertEqual(len(token["top_logprobs"]), 2)
                self.assertLessEqual(token["logprob"], token["top_logprobs"][0]["logprob"])
        self.assertEqual(body["usage"]["completion_tokens"], tokens)
        logprobs = answers["b"]["response"]["body"]["choices"][0]["logprobs"]
        self.assertEqual(len(set(logprobs["tokens"])), 1)
        self.assertEqual([len(logprobs[k]) for k in
                          ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [5] * 4)
        for name, word in (("c", "n is 200"), ("d", "six"), ("e", "stop"), ("f", "top_logprobs"),
                           ("g", "frequency_penalty"), ("h", "bad_words")):
            response = answers[name]["response"]
            self.assertEqual(response["status_code"], 400, name)
            self.assertIn(word, response["body"]["error"]["message"])

    def test_torn_run_goes_on(self):
        lines = [self.line(f"r{i}", prompt=f"Number {i}", max_tokens=4, temperature=0)
                 for i in range(6)]
        self.assertEqual(self.run_batch(lines)[0], 0)
        whole, _ = self.answers()
        kept = self.target.read_text().splitlines(keepends=True)
        self.target.write_text("".join(kept[:2]) + kept[2][:20])
        self.assertEqual(self.run_batch(lines)[0], 0)
        again, n = self.answers()
        self.assertEqual(n, 6)
        for name, answer in whole.items():
            self.assertEqual(
                answer["response"]["body"]["choices"], again[name]["response"]["body"]["choices"]
            )
        before = self.target.read_bytes()
        self.assertEqual(self.run_batch(lines)[0], 0)
        self.assertEqual(self.target.read_bytes(), before)

    def test_wrong_lines(self):
        good = self.line("a", prompt="x")
        for bad, word in (
            ({**good, "url": "/v1/poems"}, "url"),
            ({**good, "method": "GET"}, "method"),
            ({**good, "body": 3}, "body"),
            ({**good, "custom_id": None}, "custom_id"),
            (good, "custom_id"),
        ):
            status, _, err = self.run_batch([good, bad])
            self.assertEqual(status, 2)
            self.assertIn("line 2", err)
            self.assertIn(word, err)
            self.assertFalse(self.target.exists())
        self.source.write_text("{]\n")
        status, _, err = pagoda("batch", NANO, "-i", self.source, "-o", self.target)
        self.assertEqual(status, 2)
        self.assertIn("line 1", err)


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)
