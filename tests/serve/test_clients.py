"""Other clients. Request patterns of lm-eval, guidellm and `vllm bench serve`, written out here,
and schemathesis against /openapi.json. langchain-openai and litellm: test_packages.py.
"""
import json
import pathlib
import subprocess
import sys

import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def tokens(server, text):
    return server.json("/tokenize", {"prompt": text})[1]["tokens"]


def test_lm_eval_loglikelihood(server):
    """local-completions: echo, logprobs 1, max_tokens 1, a batch of token lists."""
    pairs = [("The capital of France is", " Paris"), ("The capital of France is", " banana")]
    contexts = [tokens(server, a) for a, _ in pairs]
    whole = [tokens(server, a + b) for a, b in pairs]
    status, a = server.json(TEXT, {"model": "nano", "prompt": whole, "temperature": 0,
                                   "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True})
    assert status == 200
    sums = []
    for choice, context, ids in zip(sorted(a["choices"], key=lambda c: c["index"]), contexts,
                                    whole):
        values = choice["logprobs"]["token_logprobs"]
        tops = choice["logprobs"]["top_logprobs"]
        assert values[0] is None and tops[0] is None
        assert len(values) == len(tops) == len(ids) + 1  # the one token behind the prompt
        scored = values[len(context):-1]
        assert len(scored) == len(ids) - len(context) > 0
        for value, top in zip(scored, tops[len(context):-1]):
            assert isinstance(top, dict) and value <= max(top.values()) + 1e-6
        sums.append(sum(scored))
    assert sums[0] > sums[1]
    assert server.json("/tokenizer_info")[0] == 200


def test_lm_eval_generate_until(server):
    body = {"model": "nano", "messages": [{"role": "user", "content": "Say a word."}],
            "max_tokens": 24, "temperature": 0, "stop": ["Question:", "\n\n", "<|im_end|>", "###"],
            "seed": 1234}
    status, a = server.json(CHAT, body)
    assert status == 200 and a["choices"][0]["index"] == 0
    assert server.json(CHAT, body)[1]["choices"][0]["message"] == a["choices"][0]["message"]


def test_guidellm(server):
    """Its validation, then a stream with usage of every chunk and a fixed length."""
    assert server.request("/health")[0] == 200
    model = server.json("/v1/models")[1]["data"][0]["id"]
    for path, prompt in ((TEXT, {"prompt": "one two three"}),
                         (CHAT, {"messages": [{"role": "user", "content": [
                             {"type": "text", "text": "one two three"}]}]})):
        events = server.events(path, {
            "model": model, "stream": True, "max_tokens": 12, "max_completion_tokens": 12,
            "stop": None, "ignore_eos": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}, **prompt})
        usage = [e["usage"] for e in events if e.get("usage")]
        assert usage[-1]["completion_tokens"] == 12
        made = [u["completion_tokens"] for u in usage]
        assert made == sorted(made)


def test_vllm_bench_serve(server):
    status, headers, text = server.request(
        TEXT, {"model": "nano", "prompt": tokens(server, "a b c d"), "temperature": 0.0,
               "repetition_penalty": 1.0, "max_tokens": 9, "logprobs": None, "stream": True,
               "ignore_eos": True, "stream_options": {"include_usage": True}},
        headers={"x-request-id": "bench-17"})
    assert status == 200 and headers["X-Request-Id"] == "bench-17"
    data = [json.loads(line[6:]) for line in text.split("\n\n")
            if line.startswith("data: ") and line != "data: [DONE]"]
    assert data[-1]["usage"]["completion_tokens"] == 9 and data[-1]["choices"] == []
    assert server.events(CHAT, {
        "model": "nano", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "temperature": 0.0, "max_completion_tokens": 4, "stream": True, "ignore_eos": True,
        "stream_options": {"include_usage": True}})[-1]["usage"]["completion_tokens"] == 4


def test_schemathesis(start, tmp_path):
    """Cases made from our own OpenAPI file: no 5xx, no status, type or body it does not tell."""
    pytest.importorskip("schemathesis")
    s = start("--device", "null", "--max-model-len", "64", "--disable-access-log")
    run = subprocess.run(
        [str(pathlib.Path(sys.executable).parent / "schemathesis"), "run", s.url + "/openapi.json",
         "--max-examples", "15", "--seed", "1", "--generation-database", "none", "--checks",
         "not_a_server_error,status_code_conformance,content_type_conformance,"
         "response_schema_conformance"],
        cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert run.returncode == 0, run.stdout[-3000:]
    assert "13 selected / 13 total" in run.stdout
    assert s.request("/livez")[0] == 200
