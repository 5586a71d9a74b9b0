"""/metrics against what vLLM has: names, labels, buckets and their meaning."""
import re

import pytest

TEXT = "/v1/completions"
# vLLM 0.32, docs/usage/metrics and vllm/v1/metrics/loggers.py.
GAUGES = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"]
COUNTERS = ["prompt_tokens", "prompt_tokens_cached", "generation_tokens", "request_success",
            "num_preemptions", "corrupted_requests", "prefix_cache_queries", "prefix_cache_hits",
            "admission_rejections"]
LONG_TIMES = ("0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 "
              "480.0 960.0 1920.0 7680.0")
TOKEN_TIMES = ("0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 "
               "40.0 80.0")
TOKENS = "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0"  # of a context of 1024
BUCKETS = {
    "time_to_first_token_seconds": "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 "
                                   "2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0",
    "inter_token_latency_seconds": TOKEN_TIMES,
    "request_time_per_output_token_seconds": TOKEN_TIMES,
    "e2e_request_latency_seconds": LONG_TIMES, "request_queue_time_seconds": LONG_TIMES,
    "request_inference_time_seconds": LONG_TIMES, "request_prefill_time_seconds": LONG_TIMES,
    "request_decode_time_seconds": LONG_TIMES, "request_prompt_tokens": TOKENS,
    "request_generation_tokens": TOKENS, "request_max_num_generation_tokens": TOKENS,
    "iteration_tokens_total": "1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 "
                              "8192.0 16384.0",
    "request_params_n": "1.0 2.0 5.0 10.0 20.0", "request_params_max_tokens": TOKENS,
}


def values(s, name):
    """{labels: value} of every line of a name."""
    text = s.request("/metrics")[2]
    found = re.finditer(rf"^{re.escape(name)}{{(.*)}} (\S+)$", text, re.M)
    return {m[1]: float(m[2]) for m in found}


def test_names_and_buckets(start):
    s = start("--device", "null", "--max-model-len", "1024")
    text = s.request("/metrics")[2]
    labels = 'model_name="nano",engine="0"'
    for name in GAUGES:
        assert f"# TYPE vllm:{name} gauge\n" in text and f"vllm:{name}{{{labels}}} " in text
    for name in COUNTERS:
        assert f"# TYPE vllm:{name}_total counter\n" in text
        assert f"vllm:{name}_total{{{labels}" in text
    for name, edges in BUCKETS.items():
        assert f"# TYPE vllm:{name} histogram\n" in text
        found = re.findall(rf'vllm:{name}_bucket{{{labels},le="(.*?)"}}', text)
        assert " ".join(found) == edges + " +Inf", name
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total",
                 "process_start_time_seconds"):
        assert re.search(rf"^{name} [1-9]|^{name} 0\.\d*[1-9]", text, re.M), name
    for name in ("device_lost_total", "device_opened_total", "step_retries_total"):
        assert s.metric(f"pagoda:{name}") == 0


def test_meaning(start):
    """Three answers to a prompt of four tokens on a device of 20 ms a step."""
    s = start("--device", "null{step_us=20000}", "--max-model-len", "1024")
    status, _ = s.json(TEXT, {"prompt": [5, 6, 7, 8], "n": 3, "max_tokens": 6, "ignore_eos": True})
    assert status == 200

    def histogram(name):
        return (s.metric(f"vllm:{name}_count"), s.metric(f"vllm:{name}_sum"))

    # Each answer counts by itself: one first token, five gaps.
    assert histogram("time_to_first_token_seconds")[0] == 3
    n, total = histogram("inter_token_latency_seconds")
    assert n == 15 and 0.015 < total / n < 0.06
    assert histogram("request_generation_tokens") == (3, 18)
    # One request.
    assert histogram("request_prompt_tokens") == (1, 4)
    assert histogram("request_max_num_generation_tokens") == (1, 6)
    assert histogram("request_params_n") == (1, 3)
    assert histogram("request_params_max_tokens") == (1, 6)
    _, end = histogram("e2e_request_latency_seconds")
    _, inference = histogram("request_inference_time_seconds")
    _, decode = histogram("request_decode_time_seconds")
    _, prefill = histogram("request_prefill_time_seconds")
    assert 0.1 <= decode < inference <= end
    assert prefill == pytest.approx(inference - decode, abs=1e-6)
    assert values(s, "vllm:request_success_total")[
        'model_name="nano",engine="0",finished_reason="length"'] == 3


def test_tokens_of_steps(start):
    """A prompt counts in the step of its end, beside the tokens made there."""
    s = start("--device", "null", "--max-num-seqs", "16", "--max-num-batched-tokens", "16")
    for length in (20, 7):
        assert s.json(TEXT, {"prompt": list(range(9, 9 + length)), "max_tokens": 3,
                             "ignore_eos": True})[0] == 200
    # 16 of 20 in a step that gives nothing; 20 + 1; 1; 1; then 7 + 1; 1; 1.
    found = values(s, "vllm:iteration_tokens_total_bucket")
    le = {re.search(r'le="(.*?)"', labels)[1]: n for labels, n in found.items()}
    assert [le[edge] for edge in ("1.0", "8.0", "16.0", "32.0", "+Inf")] == [4, 5, 5, 6, 6]
    assert s.metric("vllm:iteration_tokens_total_sum") == 20 + 7 + 2 * 3
    assert s.metric("vllm:iteration_tokens_total_count") == 6


def test_answers_by_route(start):
    s = start("--device", "null")
    s.request("/v1/models/nano")
    s.request("/v1/models/other")
    s.json(TEXT, {"prompt": "x", "max_tokens": 1})
    s.json(TEXT, {"prompt": "x", "n": 0})
    s.request("/secret/path")
    found = values(s, "http_requests_total")
    for handler, method, status in (("/v1/models/{id}", "GET", 200),
                                    ("/v1/models/{id}", "GET", 404), (TEXT, "POST", 200),
                                    (TEXT, "POST", 400), ("", "GET", 404)):
        assert found[f'handler="{handler}",method="{method}",status="{status}"'] == 1
    took = values(s, "http_request_duration_seconds_count")
    assert took[f'handler="{TEXT}",method="POST"'] == 2
    assert "secret" not in "".join(found)  # a caller cannot make as many series as he likes


def test_durations_by_route(start):
    """Of 12 steps of 20 ms, streamed or not, and of what takes no step."""
    s = start("--device", "null{step_us=20000}")
    for stream in (False, True):
        s.request(TEXT, {"prompt": "x", "max_tokens": 12, "ignore_eos": True, "stream": stream})
    s.request(TEXT, {"prompt": "x", "n": 0})
    s.request("/livez")
    found = values(s, "http_request_duration_seconds_bucket")
    for handler, method, short, n in ((TEXT, "POST", 1, 3), ("/livez", "GET", 1, 1)):
        counts = [found[f'handler="{handler}",method="{method}",le="{edge}"']
                  for edge in ("0.1", "0.5", "1.0", "+Inf")]
        assert counts[0] == short and counts[-1] == n and counts == sorted(counts)
    total = values(s, "http_request_duration_seconds_sum")[f'handler="{TEXT}",method="POST"']
    assert 2 * 0.24 <= total < 1.2


def test_lost_device(start):
    """The device is lost and opened again; the answer is the same, and the figures say so."""
    good = start("--device", "cpu").json(TEXT, {"prompt": "Once upon a time", "max_tokens": 20,
                                                "temperature": 0})[1]
    s = start("--device", "fault{op=gemm_add;lose_nth=30}(cpu)")
    status, a = s.json(TEXT, {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0})
    assert status == 200 and a["choices"][0]["text"] == good["choices"][0]["text"]
    assert s.metric("pagoda:device_lost_total") == s.metric("pagoda:device_opened_total") > 0
