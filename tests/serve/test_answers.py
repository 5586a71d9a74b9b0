"""What the server answers: shapes, arithmetic, streams against whole answers."""
import json

import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_chat(server):
    status, a = server.json(CHAT, {"model": "nano", "messages": QUESTION, "temperature": 0})
    assert status == 200
    assert a["object"] == "chat.completion"
    assert a["id"].startswith("chatcmpl-")
    assert a["choices"][0]["message"] == {"role": "assistant",
                                          "content": "The capital of France is Paris."}
    assert a["choices"][0]["finish_reason"] == "stop"
    u = a["usage"]
    assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"]


def test_usage_of_tokens_and_ids(server):
    _, tokens = server.json("/tokenize", {"prompt": "Once upon a time"})
    _, by_text = server.json(TEXT, {"prompt": "Once upon a time", "max_tokens": 7,
                                    "temperature": 0, "ignore_eos": True})
    _, by_ids = server.json(TEXT, {"prompt": tokens["tokens"], "max_tokens": 7, "temperature": 0,
                                   "ignore_eos": True})
    assert by_text["usage"]["prompt_tokens"] == tokens["count"] == len(tokens["tokens"])
    assert by_text["usage"]["completion_tokens"] == 7
    assert by_text["choices"][0]["text"] == by_ids["choices"][0]["text"]
    assert by_text["choices"][0]["finish_reason"] == "length"
    _, text = server.json("/detokenize", {"tokens": tokens["tokens"]})
    assert text["prompt"] == "Once upon a time"


def test_batch_of_prompts(server):
    prompts = ["Once upon a time", "The cat", "One day"]
    _, alone = zip(*(server.json(TEXT, {"prompt": p, "max_tokens": 8, "temperature": 0})
                     for p in prompts))
    _, together = server.json(TEXT, {"prompt": prompts, "max_tokens": 8, "temperature": 0})
    assert [c["index"] for c in together["choices"]] == [0, 1, 2]
    assert [c["text"] for c in together["choices"]] == [a["choices"][0]["text"] for a in alone]
    assert together["usage"]["prompt_tokens"] == sum(a["usage"]["prompt_tokens"] for a in alone)
    _, ids = zip(*(server.json("/tokenize", {"prompt": p}) for p in prompts))
    _, by_ids = server.json(TEXT, {"prompt": [i["tokens"] for i in ids], "max_tokens": 8,
                                   "temperature": 0})
    assert [c["text"] for c in by_ids["choices"]] == [c["text"] for c in together["choices"]]


@pytest.mark.parametrize("n", [1, 3])
def test_stream_equals_whole(server, n):
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "n": n, "seed": 5,
            "temperature": 1.5, "max_tokens": 24}
    _, whole = server.json(CHAT, body)
    events = server.events(CHAT, {**body, "stream": True})
    for index in range(n):
        mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        text = "".join(c["delta"].get("content", "") for c in mine)
        assert text == whole["choices"][index]["message"]["content"]
        ends = [c["finish_reason"] for c in mine]
        assert ends[-1] == whole["choices"][index]["finish_reason"]
        assert set(ends[:-1]) == {None}
        assert mine[-1]["delta"] == {}
    assert len({e["id"] for e in events}) == 1
    if n == 3:
        assert len({c["message"]["content"] for c in whole["choices"]}) > 1


def test_completion_stream_equals_whole(server):
    body = {"prompt": ["Once upon", "The dog"], "max_tokens": 16, "temperature": 0, "logprobs": 3}
    _, whole = server.json(TEXT, body)
    events = server.events(TEXT, {**body, "stream": True})
    for index in range(2):
        mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        assert "".join(c["text"] for c in mine) == whole["choices"][index]["text"]
        want = whole["choices"][index]["logprobs"]
        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            joined = [v for c in mine if c["logprobs"] for v in c["logprobs"][key]]
            assert joined == want[key], key


def test_stream_options(server):
    body = {"messages": QUESTION, "stream": True, "temperature": 0}
    plain = server.events(CHAT, body)
    assert all("usage" not in e for e in plain)
    asked = server.events(CHAT, {**body, "stream_options": {"include_usage": True}})
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["total_tokens"] == (asked[-1]["usage"]["prompt_tokens"] +
                                                  asked[-1]["usage"]["completion_tokens"])
    assert all(e["usage"] is None for e in asked[:-1])
    running = server.events(CHAT, {**body, "stream_options": {"include_usage": True,
                                                              "continuous_usage_stats": True}})
    counts = [e["usage"]["completion_tokens"] for e in running]
    assert counts == sorted(counts) and counts[-1] == asked[-1]["usage"]["completion_tokens"]
    off = server.events(CHAT, {**body, "stream_options": {"include_usage": False}})
    assert all("usage" not in e for e in off)
    for options in ({"include_usage": True}, {}):
        status, a = server.json(CHAT, {"messages": QUESTION, "stream_options": options})
        assert status == 400 and a["error"]["param"] == "stream_options"


def test_chat_logprobs(server):
    _, none = server.json(CHAT, {"messages": QUESTION, "temperature": 0})
    assert none["choices"][0]["logprobs"] is None
    for top in (0, 5, 20):
        _, a = server.json(CHAT, {"messages": QUESTION, "temperature": 0, "logprobs": True,
                                  "top_logprobs": top})
        content = a["choices"][0]["logprobs"]["content"]
        assert len(content) == a["usage"]["completion_tokens"]
        for token in content:
            assert len(token["top_logprobs"]) == top
            assert bytes(token["bytes"]).decode() == token["token"]
            assert token["logprob"] <= 0
            if top:
                assert token["top_logprobs"][0]["token"] == token["token"]
                values = [t["logprob"] for t in token["top_logprobs"]]
                assert values == sorted(values, reverse=True)
    for wrong in (21, -2):
        status, a = server.json(CHAT, {"messages": QUESTION, "logprobs": True,
                                       "top_logprobs": wrong})
        assert status == 400 and a["error"]["param"] == "top_logprobs"
    status, a = server.json(CHAT, {"messages": QUESTION, "top_logprobs": 3})
    assert status == 400


def test_echo_scores_a_prompt(server):
    """The request pattern of lm-eval's local-completions."""
    _, tokens = server.json("/tokenize", {"prompt": "The capital of France is Paris."})
    ids = tokens["tokens"]
    body = {"model": "nano", "prompt": [ids, ids[:4]], "temperature": 0, "max_tokens": 1,
            "logprobs": 1, "seed": 1234, "echo": True}
    status, a = server.json(TEXT, body)
    assert status == 200
    for choice, n in zip(a["choices"], (len(ids), 4)):
        l = choice["logprobs"]
        assert len(l["tokens"]) == len(l["token_logprobs"]) == len(l["top_logprobs"]) == n + 1
        assert l["token_logprobs"][0] is None and l["top_logprobs"][0] is None
        for value, top in zip(l["token_logprobs"][1:], l["top_logprobs"][1:]):
            assert value <= max(top.values()) + 1e-6
        assert choice["text"].startswith("".join(l["tokens"][:-1]))
    # Equal prefixes have equal scores, whatever stands behind them.
    assert a["choices"][0]["logprobs"]["token_logprobs"][:4] == \
        a["choices"][1]["logprobs"]["token_logprobs"][:4]
    _, only = server.json(TEXT, {**body, "max_tokens": 0})
    assert only["choices"][0]["logprobs"]["token_logprobs"] == \
        a["choices"][0]["logprobs"]["token_logprobs"][:-1]
    assert only["usage"]["completion_tokens"] == 0


def test_prompt_logprobs(server):
    _, a = server.json(TEXT, {"prompt": "Once upon a time", "max_tokens": 1, "prompt_logprobs": 2})
    rows = a["choices"][0]["prompt_logprobs"]
    assert rows[0] is None and len(rows) == a["usage"]["prompt_tokens"]
    for row in rows[1:]:
        assert 2 <= len(row) <= 3
        ranks = {v["rank"] for v in row.values()}
        assert 1 in ranks


def test_stop_strings(server):
    body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60}
    _, whole = server.json(TEXT, body)
    text = whole["choices"][0]["text"]
    stop = text[20:26]
    first = text.index(stop)
    for stream in (False, True):
        for keep in (False, True):
            request = {**body, "stop": ["never there", stop], "stream": stream,
                       "include_stop_str_in_output": keep}
            if stream:
                events = server.events(TEXT, request)
                got = "".join(e["choices"][0]["text"] for e in events)
                end = events[-1]["choices"][0]
            else:
                _, a = server.json(TEXT, request)
                end = a["choices"][0]
                got = end["text"]
            assert got == text[:first + (len(stop) if keep else 0)]
            assert end["finish_reason"] == "stop" and end["stop_reason"] == stop


def test_cached_tokens(server):
    prompt = "Tell me about " + "cats and dogs and " * 8
    _, first = server.json(TEXT, {"prompt": prompt, "max_tokens": 1, "cache_salt": "once"})
    _, again = server.json(TEXT, {"prompt": prompt, "max_tokens": 1, "cache_salt": "once"})
    _, other = server.json(TEXT, {"prompt": prompt, "max_tokens": 1, "cache_salt": "other"})
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 16
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_bias_and_allowed(server):
    _, yes = server.json("/tokenize", {"prompt": " yes"})
    token = yes["tokens"][0]
    for extra in ({"allowed_token_ids": [token]}, {"logit_bias": {str(token): 100}}):
        _, a = server.json(TEXT, {"prompt": "Is it?", "max_tokens": 3, "ignore_eos": True,
                                  "return_token_ids": True, "temperature": 1.0, **extra})
        assert a["choices"][0]["token_ids"] == [token] * 3


def test_tools_reach_the_template(server):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}]
    _, plain = server.json("/tokenize", {"messages": QUESTION})
    _, with_tools = server.json("/tokenize", {"messages": QUESTION, "tools": tools})
    _, text = server.json("/detokenize", {"tokens": with_tools["tokens"]})
    assert with_tools["count"] > plain["count"] and "get_weather" in text["prompt"]


def test_forms_of_messages(server):
    parts = [{"role": "developer", "content": "Be brief."},
             {"role": "user", "content": [{"type": "text", "text": "What is the capital"},
                                          {"type": "text", "text": "of France?"}]}]
    flat = [{"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is the capital\nof France?"}]
    _, a = server.json("/tokenize", {"messages": parts})
    _, b = server.json("/tokenize", {"messages": flat})
    assert a["tokens"] == b["tokens"]
    status, e = server.json(CHAT, {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}]}]})
    assert status == 400 and "image_url" in e["error"]["message"]


def test_models_and_small_routes(server):
    status, models = server.json("/v1/models")
    assert status == 200 and models["data"][0]["id"] == "nano"
    assert models["data"][0]["max_model_len"] > 0
    assert server.json("/v1/models/nano")[1] == models["data"][0]
    assert server.json("/v1/models/other")[0] == 404
    for path in ("/health", "/livez", "/readyz", "/ping", "/version", "/load", "/openapi.json",
                 "/tokenizer_info", "/metrics"):
        assert server.request(path)[0] == 200, path
    assert server.request("/health", method="HEAD")[0] == 200


def test_metrics_count(server):
    before = server.metric("vllm:generation_tokens_total")
    ended = server.metric("vllm:request_success_total")
    server.json(TEXT, {"prompt": "Once", "max_tokens": 9, "ignore_eos": True})
    assert server.metric("vllm:generation_tokens_total") == before + 9
    assert server.metric("vllm:request_success_total") == ended + 1
    _, _, text = server.request("/metrics")
    seen = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            assert line.split()[2] not in seen
            seen.add(line.split()[2])
        elif not line.startswith("#"):
            name = line.split("{")[0].split(" ")[0]
            assert name.removesuffix("_bucket").removesuffix("_sum").removesuffix(
                "_count") in seen, line
            float(line.rsplit(" ", 1)[1])
    buckets = [line for line in text.splitlines()
               if line.startswith("vllm:e2e_request_latency_seconds_bucket")]
    counts = [float(line.rsplit(" ", 1)[1]) for line in buckets]
    assert counts == sorted(counts) and 'le="+Inf"' in buckets[-1]


def test_request_ids(server):
    _, headers, _ = server.request("/v1/models", headers={"X-Request-Id": "mine-1"})
    assert headers["X-Request-Id"] == "mine-1"
    _, headers, _ = server.request("/v1/models", headers={"X-Request-Id": "x" * 200})
    assert headers["X-Request-Id"].startswith("req-")


def test_json_of_odd_text(server):
    _, a = server.json(CHAT, {"messages": [{"role": "user", "content": "\u0000 \" \\ \n é 😀"}],
                              "max_tokens": 4})
    assert isinstance(a["choices"][0]["message"]["content"], str)
    assert json.loads(json.dumps(a)) == a
