"""pagoda bench serve against the server."""
import json
import subprocess


def bench(server, *flags):
    return subprocess.run([server.program, "bench", "serve", "--base-url", server.url, *flags],
                          capture_output=True, text=True, timeout=120, check=False)


def test_arithmetic(start):
    s = start("--device", "null{step_us=2000}", "--max-num-seqs", "16")
    run = bench(s, "--num-prompts", "24", "--random-input-len", "10", "--random-output-len", "8",
                "--max-concurrency", "4", "--goodput", "e2el:60000", "--json")
    assert run.returncode == 0, run.stderr
    r = json.loads(run.stdout)
    assert (r["completed"], r["failed"]) == (24, 0)
    assert (r["total_input_tokens"], r["total_output_tokens"]) == (240, 192)
    assert r["max_concurrent_requests"] == 4
    assert abs(r["output_throughput"] * r["duration"] - 192) < 0.01
    assert r["request_goodput"] == r["request_throughput"]
    # A step takes 2 ms: so do gaps, and eight steps an answer.
    assert 2.0 <= r["median_itl_ms"] < 20 and 2.0 <= r["median_tpot_ms"] < 20
    assert r["median_e2el_ms"] >= 16 and r["median_ttft_ms"] <= r["median_e2el_ms"]


def test_chat_and_rate(server):
    run = bench(server, "--endpoint", "/v1/chat/completions", "--prompt", "Tell me a story.",
                "--num-prompts", "10", "--request-rate", "100", "--random-output-len", "6",
                "--json")
    r = json.loads(run.stdout)
    assert r["completed"] == 10 and r["total_output_tokens"] == 60


def test_wrong_use(server):
    for flags, word in ((("--goodput", "x:1"), "goodput"), (("--base-url", "ftp://x"), "base-url"),
                        (("--num-prompts", "0"), "num-prompts")):
        run = bench(server, *flags)
        assert run.returncode == 2 and word in run.stderr
    run = bench(server, "--base-url", "http://127.0.0.1:1", "--num-prompts", "1")
    assert run.returncode == 1 and "127.0.0.1:1" in run.stderr
    run = bench(server, "--model", "other", "--num-prompts", "1")
    assert run.returncode == 1 and "not served here" in run.stderr
