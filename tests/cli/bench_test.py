"""bench, plan and inspect: exit status, sentences and the fields of their JSON, on tiny sizes.

    bench_test.py PAGODA SOURCE_DIR PLUGIN_DIR
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PAGODA, SOURCE, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
NANO = SOURCE / "models" / "nano"
TINY = SOURCE / "tests" / "golden" / "models" / "llama-default"
QUICK = ["--repeat", 2, "--warmup", 0, "--limit-ms", 2, "--json"]
LIMITS = ["read", "dot_f32", "dot_bf16", "dot_i8"]


def pagoda(*args):
    """Runs the program; returns (status, stdout, stderr)."""
    env = {"PATH": os.environ["PATH"], "PAGODA_PLUGIN_PATH": PLUGINS}
    for key in ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        if key in os.environ:
            env[key] = os.environ[key]
    # The leak checker dies on the thread-local memory of a library that the plugin opened late.
    if "ASAN_OPTIONS" in env and "--yardsticks=true" in args:
        env["ASAN_OPTIONS"] += ":detect_leaks=0"
    done = subprocess.run([PAGODA, *map(str, args)], capture_output=True, env=env, timeout=300)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Case(unittest.TestCase):
    def document(self, *args, status=0):
        code, out, err = pagoda(*args)
        self.assertEqual(code, status, err)
        return json.loads(out)

    def refuse(self, *args, words=()):
        code, out, err = pagoda(*args)
        self.assertEqual(code, 2, err)
        self.assertEqual(out, "")
        for word in words:
            self.assertIn(word, err)


class Bench(Case):
    def check(self, d, name, n_samples):
        self.assertEqual(d["bench"], name)
        self.assertEqual(d["command"][:3], ["pagoda", "bench", name])
        self.assertGreater(d["unix_ms"], 1.6e12)
        self.assertEqual(d["machine"]["device"], "cpu:0")
        self.assertGreater(d["machine"]["workers"], 0)
        self.assertGreater(d["machine"]["memory_bytes"], 1 << 20)
        self.assertIn(d["limits"]["judged_by"], LIMITS)
        self.assertEqual(len(d["samples"]), n_samples)
        for s in d["samples"]:
            self.assertGreater(s["wall_ms"], 0)
            self.assertGreaterEqual(s["foreign_cpu_ms"], 0)
            self.assertGreaterEqual(s["foreign_cores"], 0)
            cycles = s["foreign_cpu_ms"] / 1e3 * d["machine"]["nominal_hz"]
            self.assertAlmostEqual(s["foreign_cycles"], cycles, delta=1 + cycles * 1e-6)
            for key in ("limits_before", "limits_after"):
                self.assertEqual(sorted(s[key]), sorted(LIMITS))
                self.assertGreater(s[key]["read"], 1e7)
                self.assertGreater(s[key]["dot_f32"], 1e7)

    def test_latency(self):
        d = self.document(
            "bench", "latency", f"synthetic:{TINY}", "--input-len", 9, "--output-len", 5,
            "--batch-size", 2, "--context", 20, *QUICK,
        )
        self.check(d, "latency", 2)
        self.assertEqual((d["input_len"], d["batch_size"], d["context"]), (9, 2, 20))
        self.assertEqual(d["dtype"], "bf16")
        for s in d["samples"]:
            prefill, decode = s["prefill"], s["decode"]
            rate = 2 * 9 / prefill["ttft_ms"] * 1e3
            self.assertAlmostEqual(prefill["tokens_per_s"] / rate, 1.0, places=6)
            self.assertEqual(decode["steps"], 4)
            self.assertLessEqual(decode["step_best_ms"], decode["step_p50_ms"])
            self.assertLessEqual(decode["step_p50_ms"], decode["step_p90_ms"])
            self.assertLessEqual(decode["step_p90_ms"], decode["step_p99_ms"])
            # Bytes a step by hand: matrices, and keys and values of both sequences.
            step = d["step_weight_bytes"] + 2 * decode["mid_context"] * d["kv_token_bytes"]
            rate = step / decode["step_mean_ms"] * 1e3
            self.assertAlmostEqual(decode["bytes_per_s"] / rate, 1.0, places=6)
            read = (s["limits_before"]["read"] + s["limits_after"]["read"]) / 2
            self.assertAlmostEqual(decode["share_read"] * read / rate, 1.0, places=6)

    def test_latency_without_limits(self):
        d = self.document("bench", "latency", NANO, "--device", "null", "--output-len", 3, *QUICK)
        self.assertEqual(len(d["samples"]), 2)
        self.assertEqual(d["samples"][0]["limits_before"]["read"], 0)
        self.assertEqual(d["samples"][0]["decode"]["share_read"], 0)

    def test_throughput(self):
        d = self.document(
            "bench", "throughput", NANO, "--num-prompts", 3, "--input-len", 5, "--output-len", 4,
            *QUICK,
        )
        self.check(d, "throughput", 2)
        for s in d["samples"]:
            self.assertEqual(s["steps"], 4)
            self.assertAlmostEqual(s["output_tokens_per_s"] * s["seconds"], 12, places=6)
            self.assertAlmostEqual(s["total_tokens_per_s"] * s["seconds"], 27, places=6)
            self.assertLessEqual(s["ttft_p50_ms"], s["request_p50_ms"])

    def test_ops(self):
        d = self.document(
            "bench", "ops", NANO, "--max-rows", 4, "--sample-ms", 1, "--limit-ms", 1, "--json",
            "--yardsticks=false",
        )
        own = [s for s in d["samples"] if not s["yardstick"]]
        self.check(d, "ops", len(d["samples"]))
        ops = [s["op"] for s in own]
        self.assertEqual(ops[:15:3], ["qkv", "o", "gate_up", "down", "head"])
        self.assertEqual([s["rows"] for s in own][:3], [1, 2, 4])
        fused = ["qkv_rope_write", "o_add", "norm_gate_up", "down_add", "head_sample", "rmsnorm",
                 "sample_greedy", "sample_top_p"]
        self.assertEqual([op for op in ops[15:] if op != "attn"], fused)
        self.assertEqual([s["context"] for s in own if s["op"] == "attn"], [128, 1024])
        config = json.loads((NANO / "config.json").read_text())
        head = own[14]
        self.assertEqual((head["n"], head["k"]), (config["vocab_size"], config["hidden_size"]))
        for s in d["samples"]:
            self.assertTrue(s["kernel"])
            self.assertGreaterEqual(s["calls"], 3)
            self.assertLessEqual(s["best_us"], s["p50_us"])
            self.assertLessEqual(s["p50_us"], s["p90_us"])
            self.assertLessEqual(s["p90_us"], s["p99_us"])
            for limit in LIMITS:
                rate = s["bytes_per_s" if limit == "read" else "ops_per_s"]
                mean = (s["limits_before"][limit] + s["limits_after"][limit]) / 2
                share = rate / mean if mean > 0 else 0
                self.assertAlmostEqual(s["share_" + limit], share, places=6)
            self.assertEqual(s["share_dot"], s["share_" + s["judged_by"]])

    def test_ops_attention(self):
        d = self.document("bench", "ops", NANO, "--only", "attn", "--sample-ms", 1, "--limit-ms", 1,
                          "--json")
        config = json.loads((NANO / "config.json").read_text())
        token = 2 * 2 * config["num_key_value_heads"] * config["head_dim"]
        cases = [(s["sequences"], s["rows"], s["context"]) for s in d["samples"]]
        self.assertIn((8, 8, 1024), cases)
        self.assertIn((1, 512, 512), cases)
        for s in d["samples"]:
            read = token * s["sequences"] * s["context"]
            self.assertAlmostEqual(s["bytes_per_s"] * s["mean_us"] / 1e6 / read, 1.0, places=6)
            # One of n rows at context c sees c - n + 1 .. c tokens; each costs 4 operations a
            # number of a head.
            n, c = s["rows"] // s["sequences"], s["context"]
            pairs = s["sequences"] * sum(c - n + 1 + i for i in range(n))
            ops = 4 * config["num_attention_heads"] * config["head_dim"] * pairs
            self.assertAlmostEqual(s["ops_per_s"] * s["mean_us"] / 1e6 / ops, 1.0, places=6)

    def test_yardsticks(self):
        d = self.document("bench", "ops", NANO, "--only", "o", "--sample-ms", 1, "--limit-ms", 1,
                          "--json", "--yardsticks=true")
        self.assertEqual([y["name"] for y in d["yardsticks"]], ["OpenBLAS", "oneDNN"])
        taken = [s for s in d["samples"] if s["yardstick"]]
        for y in d["yardsticks"]:
            rows = [s["rows"] for s in taken if s["kernel"] == y["name"]]
            if y["reason"]:
                self.assertEqual(rows, [], y)
            else:
                self.assertTrue(y["version"])
                self.assertLessEqual({1, 8, 32, 512}, set(rows))
        for s in taken:
            share = s["ops_per_s"] / ((s["limits_before"][s["judged_by"]] +
                                       s["limits_after"][s["judged_by"]]) / 2)
            self.assertAlmostEqual(s["share_dot"] / share, 1.0, places=6)
        none = self.document("bench", "ops", NANO, "--only", "o", "--rows", 1, "--yardsticks",
                             "false", "--sample-ms", 1, "--limit-ms", 1, "--json")
        self.assertEqual((none["yardsticks"], len(none["samples"])), ([], 1))
        missing = [y["name"] for y in d["yardsticks"] if y["reason"]]
        if missing:
            self.skipTest(", ".join(missing) + " not installed")

    def test_startup(self):
        d = self.document("bench", "startup", NANO, *QUICK)
        self.check(d, "startup", 2)
        for s in d["samples"]:
            parts = s["process_ms"] + s["engine_ms"] + s["token_ms"]
            self.assertAlmostEqual(parts, s["first_token_ms"], places=6)
            self.assertGreater(s["engine_ms"], 0)
        times = sorted(s["first_token_ms"] for s in d["samples"])
        ends = [d["first_token"][key] for key in ("best_ms", "p50_ms", "p90_ms", "p99_ms")]
        self.assertEqual(ends, [times[0], times[0], times[1], times[1]])

    def test_for_people(self):
        code, out, err = pagoda("bench", "latency", NANO, "--repeat", 1, "--limit-ms", 2)
        self.assertEqual(code, 0, err)
        for word in ("first token", "p99", "limits alongside", "others used"):
            self.assertIn(word, out)

    def test_wrong_use(self):
        self.refuse("bench", words=["usage"])
        self.refuse("bench", "latenzy", words=["latenzy", "latency"])
        self.refuse("bench", "latency", "--input-len", 0, words=["--input-len", "from 1"])
        self.refuse("bench", "latency", "synthetic:gpt", words=["gpt", "llama-3.2-1b"])
        self.refuse("bench", "ops", "synthetic:qwen3-30b-a3b", words=["mixture of experts"])
        self.refuse("bench", "ops", NANO, "--only", "qkv,gem", words=["gem", "qkv_rope_write"])
        self.refuse("bench", "startup", "/no/such/model", words=["/no/such/model"])


class Plan(Case):
    def test_plan(self):
        d = self.document("plan", "synthetic:llama-3.2-1b", "--memory", "8GiB", "--device", "cpu",
                          "--max-model-len", 2048, "--json")
        m = d["memory"]
        parts = ("weights", "activations", "scratch", "batch", "kv")
        self.assertEqual(sum(m[p] for p in parts), m["total"])
        self.assertLessEqual(m["total"], m["allowed"])
        self.assertEqual(m["kv"], m["kv_fixed"] + m["kv_block"] * d["num_blocks"])
        # 1,235,814,400 parameters of 2 bytes; 16 layers, 8 heads of 64, keys and values of 2 bytes.
        self.assertAlmostEqual(m["weights"] / (1235814400 * 2), 1.0, delta=0.01)
        self.assertEqual(m["kv_block"], 16 * 2 * 8 * 64 * 2 * d["block_size"])
        counts = {}
        for op in d["operations"]:
            counts[op["op"]] = counts.get(op["op"], 0) + op["count"]
            self.assertIn(op["place"], ("F0", "F1"))
        self.assertEqual(counts["attn"], 16)
        self.assertEqual(counts["gemm_add"], 32)
        self.assertEqual(d["slow_operations"], 0)

    def test_step_memory(self):
        """A row of a step beside weights and KV: the wide activation lies in bf16 where products
        round it to bf16, and needs no second copy where they read it so."""
        rows, hidden, wide = 2048, 2048, 8192

        def plan(device, *flags):
            return self.document("plan", "synthetic:llama-3.2-1b", "--device", device, "--json",
                                 "--max-num-batched-tokens", rows, "--max-model-len", 4096,
                                 "--memory", "8GiB", *flags)

        whole = plan("cpu{isa=avx2;act=f32}")["memory"]
        half = plan("cpu{isa=avx2;act=bf16}")["memory"]
        gap = 64
        self.assertEqual(whole["activations"] - half["activations"], rows * (2 * wide - gap))
        self.assertLess(whole["scratch"], rows * 2 * hidden)  # of sampling: nothing is rounded
        blocks = plan("cpu{isa=avx2;act=bf16}", "--quant", "q8_0")["memory"]
        self.assertEqual(blocks["activations"], whole["activations"])
        here = plan("cpu{act=bf16}")
        if not any("avx512_bf" in op["kernel"] for op in here["operations"]):
            self.skipTest("the processor has no dot products of bf16")
        self.assertLessEqual(here["memory"]["scratch"], rows * 2 * (hidden + 63))

    def test_deterministic(self):
        """Off: f32 products by OpenBLAS, where it is installed; on, and by default: never."""
        shape = f"synthetic:{TINY},f32"

        def kernels(*flags):
            d = self.document("plan", shape, "--device", "cpu{isa=avx2}", "--json", *flags)
            return {op["op"]: op["kernel"] for op in d["operations"]}

        self.assertEqual(kernels(), kernels("--deterministic", "on"))
        for kernel in kernels().values():
            self.assertNotIn("openblas", kernel)
        off = kernels("--deterministic", "off")
        libraries = self.document("bench", "ops", shape, "--device", "cpu", "--only", "rmsnorm",
                                  "--sample-ms", 1, "--limit-ms", 1, "--json")["yardsticks"]
        has_it = [y["reason"] for y in libraries if y["name"] == "OpenBLAS"] == [""]
        products = ("gemm_add", "gate_up", "qkv_rope_write", "head_sample")
        for op, kernel in off.items():
            self.assertEqual("openblas" in kernel, has_it and op in products, op)
        self.refuse("plan", shape, "--deterministic", "maybe", words=["maybe"])
        if not has_it:
            self.skipTest("OpenBLAS is not installed")

    def test_does_not_fit(self):
        self.refuse("plan", "synthetic:llama-3.1-8b", "--memory", "1GiB", "--device", "cpu",
                    words=["does not fit", "weights"])

    def test_for_people(self):
        code, out, err = pagoda("plan", NANO, "--device", "cpu")
        self.assertEqual(code, 0, err)
        for word in ("weights", "KV cache", "head_sample", "F0 native"):
            self.assertIn(word, out)


class Inspect(Case):
    def test_nano(self):
        d = self.document("inspect", NANO, "--json")
        config = json.loads((NANO / "config.json").read_text())
        self.assertEqual(d["architecture"], config["architectures"][0])
        self.assertEqual(d["shape"]["layers"], config["num_hidden_layers"])
        self.assertEqual(d["shape"]["vocab"], config["vocab_size"])
        self.assertEqual(d["tokenizer"]["kind"], "BPE")
        self.assertTrue(d["template"])
        self.assertEqual(d["unsupported"], [])
        size = (NANO / "model.safetensors").stat().st_size
        stored = sum(t["bytes"] for t in d["tensors"])
        self.assertLess(stored, size)
        self.assertGreater(stored, size - 65536)

    def test_synthetic(self):
        d = self.document("inspect", "synthetic:qwen2.5-0.5b,f32", "--json")
        self.assertEqual(d["parameters"], 494032768)
        self.assertEqual(d["tensors"], [{"dtype": "F32", "count": 290, "bytes": 494032768 * 4}])
        self.assertIsNone(d["tokenizer"])

    def test_people_and_wrong_use(self):
        code, out, err = pagoda("inspect", NANO)
        self.assertEqual(code, 0, err)
        for word in ("rope", "windows", "parameters", "unsupported   nothing"):
            self.assertIn(word, out)
        self.refuse("inspect", "/no/such", words=["/no/such"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
