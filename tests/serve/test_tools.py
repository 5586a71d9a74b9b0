"""Calls of tools: the null device says what a model would, token by token."""
import json

import openai
import pytest

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {
    "name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
    for name in ("get_weather", "get_time")]
ASK = {"messages": [{"role": "user", "content": "Weather in Paris?"}], "tools": TOOLS,
       "max_tokens": 400}
ONE = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris \\"é\\""}}\n</tool_call>'
TWO = ('I will look.\n' + ONE + '\n<tool_call>\n{"name": "get_time", "arguments": {"city": "Rome"}}'
       '\n</tool_call>')


@pytest.fixture
def says(server, start):
    """says(text): a server whose model says this text, then its end."""
    def make(text, *flags, end="<|im_end|>"):
        ids = server.json("/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]
        ids += server.json("/tokenize", {"prompt": end, "add_special_tokens": False})[1]["tokens"]
        return start("--device", "null{tokens=%s}" % ",".join(map(str, ids)), *flags)
    return make


def gather(events, index=0):
    """(content, calls, finish_reason) of a stream's deltas, which are checked."""
    content, calls, end = "", [], None
    for e in events:
        for c in e["choices"]:
            if c["index"] != index:
                continue
            assert None not in c["delta"].values()
            content += c["delta"].get("content", "")
            for t in c["delta"].get("tool_calls", []):
                if t["index"] == len(calls):
                    assert t["type"] == "function" and t["id"] and t["function"]["name"]
                    calls.append({"id": t["id"], "name": t["function"]["name"], "arguments": ""})
                else:
                    assert t["index"] == len(calls) - 1
                    assert set(t) == {"index", "function"} and set(t["function"]) == {"arguments"}
                calls[-1]["arguments"] += t["function"]["arguments"]
            end = c["finish_reason"] or end
    return content, calls, end


@pytest.mark.parametrize("text,content,names", [
    (ONE, None, ["get_weather"]), (TWO, "I will look.", ["get_weather", "get_time"]),
    ("No tool.", "No tool.", [])], ids=["one", "two", "none"])
def test_whole_and_stream(says, text, content, names):
    s = says(text)
    status, whole = s.json(CHAT, ASK)
    assert status == 200, whole
    choice = whole["choices"][0]
    assert choice["message"]["content"] == content
    calls = choice["message"].get("tool_calls", [])
    assert [c["function"]["name"] for c in calls] == names
    assert choice["finish_reason"] == ("tool_calls" if names else "stop")
    if names:
        assert json.loads(calls[0]["function"]["arguments"]) == {"city": 'Paris "é"'}
        assert all(c["type"] == "function" and c["id"].startswith("call_") for c in calls)
        assert len({c["id"] for c in calls}) == len(calls)
    streamed, deltas, end = gather(s.events(CHAT, {**ASK, "stream": True}))
    assert (streamed or None) == content and end == choice["finish_reason"]
    assert [(d["name"], d["arguments"]) for d in deltas] == [
        (c["function"]["name"], c["function"]["arguments"]) for c in calls]
    _, again = s.json(CHAT, ASK)
    if names:
        assert again["choices"][0]["message"]["tool_calls"][0]["id"] != calls[0]["id"]
    assert s.metric("vllm:request_success_total") == 3


def test_arguments_come_piece_by_piece(says):
    s = says(ONE)
    pieces = [t["function"]["arguments"] for e in s.events(CHAT, {**ASK, "stream": True})
              for c in e["choices"] for t in c["delta"].get("tool_calls", [])]
    assert len(pieces) > 3


def test_choice_none_and_no_tools(says):
    """Without tools, or with tool_choice none, the text stays text and the model is not told."""
    s = says(ONE)
    for body in ({**ASK, "tool_choice": "none"}, {k: v for k, v in ASK.items() if k != "tools"}):
        _, a = s.json(CHAT, body)
        assert a["choices"][0]["message"] == {"role": "assistant", "content": ONE}
        assert a["choices"][0]["finish_reason"] == "stop"
    _, told = s.json(CHAT, ASK)
    assert told["usage"]["prompt_tokens"] > a["usage"]["prompt_tokens"]
    _, none = s.json(CHAT, {**ASK, "tool_choice": "none"})
    assert none["usage"]["prompt_tokens"] == a["usage"]["prompt_tokens"]
    _, auto = s.json(CHAT, {**ASK, "tool_choice": "auto"})
    assert auto["choices"][0]["finish_reason"] == "tool_calls"


def test_one_call_at_most(says):
    s = says(TWO)
    _, a = s.json(CHAT, {**ASK, "parallel_tool_calls": False})
    assert len(a["choices"][0]["message"]["tool_calls"]) == 1
    _, calls, _ = gather(s.events(CHAT, {**ASK, "parallel_tool_calls": False, "stream": True}))
    assert [c["name"] for c in calls] == ["get_weather"]


def test_cut_by_length(says):
    s = says(ONE)
    _, a = s.json(CHAT, {**ASK, "max_tokens": 12})
    assert a["choices"][0]["finish_reason"] == "length"
    content, _, end = gather(s.events(CHAT, {**ASK, "max_tokens": 4, "stream": True}))
    assert end == "length" and ONE.startswith(content)


def test_broken_call_is_text(says):
    text = "<tool_call>\n{name: get_weather}\n</tool_call>"
    s = says(text)
    _, a = s.json(CHAT, ASK)
    assert a["choices"][0]["message"] == {"role": "assistant", "content": text}
    assert gather(s.events(CHAT, {**ASK, "stream": True})) == (text, [], "stop")


def test_parser_off_and_wrong_tools(says, start):
    s = says(ONE, "--tool-call-parser", "none")
    assert s.json(CHAT, ASK)[1]["choices"][0]["message"]["content"] == ONE
    for tools in ([5], [{}], [{"type": "function"}], [{"type": "function", "function": {}}]):
        status, e = s.json(CHAT, {**ASK, "tools": tools})
        assert status == 400 and e["error"]["param"] == "tools"
    for choice in ("required", {"type": "function", "function": {"name": "get_time"}}):
        status, e = s.json(CHAT, {**ASK, "tool_choice": choice})
        assert status == 400 and e["error"]["param"] == "tool_choice"
    with pytest.raises(RuntimeError, match="tool-call-parser"):
        start("--device", "null", "--tool-call-parser", "other")


def test_openai_round_trip(says):
    """The package's own streaming helper, and an answer of the tool in the history."""
    s = says(TWO)
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
    with client.chat.completions.stream(model="nano", messages=ASK["messages"], tools=TOOLS,
                                        max_tokens=400) as stream:
        message = stream.get_final_completion().choices[0].message
    assert [c.function.name for c in message.tool_calls] == ["get_weather", "get_time"]
    history = ASK["messages"] + [message.model_dump(exclude_none=True)] + [
        {"role": "tool", "tool_call_id": c.id, "content": "12 degrees"} for c in message.tool_calls]
    a = client.chat.completions.create(model="nano", messages=history, tools=TOOLS, max_tokens=400)
    assert a.choices[0].finish_reason == "tool_calls"
