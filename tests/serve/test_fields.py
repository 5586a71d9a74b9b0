"""Every field that servers of this kind know: honoured, read over, or refused by its name."""
import json
import pathlib
import subprocess
import sys

import pytest

from test_refusals import CHAT, TEXT, check_error

ROOT = pathlib.Path(__file__).parents[2]
MESSAGES = [{"role": "user", "content": "Hi"}]

# A value that is good where the field is taken. OpenAI's and vLLM's parameters.
HONOURED = {
    "model": "nano", "stream": False, "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "n": 2,
    "stop": ["a"], "seed": -1, "frequency_penalty": 1, "presence_penalty": -1,
    "logit_bias": {"5": 1}, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1,
    "stop_token_ids": [5], "include_stop_str_in_output": True, "ignore_eos": True,
    "min_tokens": 1, "skip_special_tokens": False, "truncate_prompt_tokens": 4,
    "prompt_logprobs": 1, "allowed_token_ids": [5, 6], "bad_words": ["x"],
    "add_special_tokens": True, "priority": 1, "request_id": "mine", "return_token_ids": True,
    "cache_salt": "s", "response_format": {"type": "text"},
    "spaces_between_special_tokens": False,
}
HONOURED_CHAT = {
    "messages": MESSAGES, "max_completion_tokens": 2, "logprobs": True, "tools": [{
        "type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "auto",
    "parallel_tool_calls": False, "reasoning_effort": "low", "add_generation_prompt": True,
    "documents": [{"text": "x"}], "chat_template_kwargs": {"enable_thinking": False},
}
HONOURED_TEXT = {"prompt": "Hi", "logprobs": 1, "echo": True, "best_of": 1}
IGNORED = [
    "user", "safety_identifier", "metadata", "store", "service_tier", "prompt_cache_key",
    "prompt_cache_retention", "verbosity", "prediction", "modalities", "audio",
    "web_search_options", "length_penalty", "session_id",
    "mm_processor_kwargs", "kv_transfer_params", "vllm_xargs", "stream_interval",
    "include_reasoning", "cache_prompt", "id_slot", "timings_per_token", "return_progress"]
REFUSED = [
    "functions", "function_call", "use_beam_search", "logprob_token_ids", "thinking_token_budget",
    "repetition_detection", "chat_template", "structured_outputs", "guided_json", "guided_regex",
    "guided_choice", "guided_grammar", "return_tokens_as_token_ids", "suffix", "samplers",
    "mirostat", "typical_p", "dry_multiplier", "xtc_probability", "dynatemp_range", "grammar",
    "json_schema", "n_probs", "t_max_predict_ms", "lora", "truncation_side"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_honoured_and_ignored(start, path):
    """Strict, so that a field nobody knows would be refused."""
    s = start("--device", "null", "--strict-fields")
    base = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hi"}
    base["max_tokens"] = 2
    for name, value in {**HONOURED, **(HONOURED_CHAT if path == CHAT else HONOURED_TEXT)}.items():
        status, a = s.json(path, {**base, name: value})
        assert status == 200, (name, a)
        wrong = {"no": "number"} if not isinstance(value, dict) else 17
        if name not in ("tool_choice", "logprobs"):
            check_error(*s.json(path, {**base, name: wrong}), 400, name)
        assert s.json(path, {**base, name: None})[0] == (400 if name in ("messages", "prompt")
                                                         else 200)
    for name in IGNORED:
        assert s.json(path, {**base, name: {"any": 1}})[0] == 200, name
    check_error(*s.json(path, {**base, "no_such_field": 1}), 400)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_refused_by_name(server, path):
    base = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hi"}
    for name in REFUSED:
        status, a = server.json(path, {**base, name: 1})
        check_error(status, a, 400, name)
        assert name in a["error"]["message"] and a["error"]["code"] == "unsupported_parameter"
        assert server.json(path, {**base, name: None, "max_tokens": 1})[0] == 200
    for name, value in (("response_format", {"type": "json_schema", "json_schema": {}}),
                        ("response_format", {"type": "json_object"})):
        check_error(*server.json(path, {**base, name: value}), 400, name)


def test_request_id_is_part_of_the_answer(server):
    _, a = server.json(TEXT, {"prompt": "Hi", "max_tokens": 1, "request_id": "mine\"7"})
    assert a["id"] == "cmpl-mine\"7"
    events = server.events(CHAT, {"messages": MESSAGES, "max_tokens": 2, "stream": True,
                                  "request_id": "mine"})
    assert {e["id"] for e in events} == {"chatcmpl-mine"}


def test_one_table(server):
    """The OpenAPI file and docs/server.md tell the limits by which bodies are checked."""
    _, described = server.json("/openapi.json")
    fields = described["components"]["schemas"]["Chat"]["properties"]
    assert (fields["n"]["minimum"], fields["n"]["maximum"]) == (1, 128)
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    for name in fields:
        assert f"| `{name}` |" in page
    assert subprocess.run([sys.executable, ROOT / "tools" / "server_docs.py", "--check"],
                          check=False).returncode == 0
    for name in IGNORED + REFUSED:
        assert f"`{name}`" in page


@pytest.mark.parametrize("raw,place", [
    (b'{"prompt": "x", "n": 1..}', "line 1, column 24"),
    (b'{"prompt": "x",\n "n": tru}', "line 2, column 7"),
    ('{"prompt": "\u00e9" "n"}'.encode(), "line 1, column 16"),
    (b'{"prompt": "x"', "line 1, column 15")])
def test_bad_json_has_a_position(server, raw, place):
    status, a = server.json(TEXT, raw)
    check_error(status, a, 400)
    assert place in a["error"]["message"]


def test_numbers_and_names_in_messages(server):
    """A refusal says what was sent and what is allowed."""
    for body, words in (({"temperature": 9}, ("9", "0 to 2")), ({"n": 129}, ("129", "1 to 128")),
                        ({"top_p": "x"}, ("string", "number")),
                        ({"stop": ["a"] * 17}, ("17", "16")),
                        ({"stop": ["a" * 257]}, ("257", "256")),
                        ({"model": "gpt"}, ("gpt", "nano")),
                        ({"prompt": [5] * 5000}, ("5000", "1024"))):
        _, a = server.json(TEXT, {"prompt": "x", **body})
        for word in words:
            assert word in a["error"]["message"], json.dumps(a)
