"""langchain-openai and litellm. They hold other versions of what tests/requirements.txt has, so
they are installed apart (tests/serve/requirements.txt); ci/check runs this file with them.
"""
import os

import pytest

if os.environ.get("PAGODA_CLIENTS") != "1":
    pytest.importorskip("langchain_openai")
    pytest.importorskip("litellm")

from langchain_openai import ChatOpenAI, OpenAI  # pylint: disable=wrong-import-position
import litellm  # pylint: disable=wrong-import-position

QUESTION = "What is the capital of France?"
PARIS = "The capital of France is Paris."


@pytest.fixture
def chat(server):
    return ChatOpenAI(base_url=server.url + "/v1", api_key="none", model="nano", temperature=0,
                      stream_usage=True)


def test_langchain_chat(chat):
    answer = chat.invoke(QUESTION)
    assert answer.content == PARIS
    assert answer.usage_metadata["total_tokens"] > answer.usage_metadata["input_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"
    chunks = list(chat.stream(QUESTION))
    assert "".join(c.content for c in chunks) == PARIS
    assert sum(c.usage_metadata["output_tokens"] for c in chunks if c.usage_metadata) > 0


def test_langchain_batch_and_completions(chat, server):
    assert [a.content for a in chat.batch([QUESTION] * 4)] == [PARIS] * 4
    llm = OpenAI(base_url=server.url + "/v1", api_key="none", model="nano", temperature=0,
                 max_tokens=4)
    assert "".join(llm.stream("Once upon a time")) == llm.invoke("Once upon a time") != ""


def test_langchain_tools(start):
    """Tokens of a call in the Hermes form, from a scripted device."""
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    probe = start("--device", "null")
    ids = probe.json("/tokenize", {"prompt": text + "<|im_end|>"})[1]["tokens"]
    s = start("--device", f"null{{tokens={','.join(map(str, ids))}}}")
    model = ChatOpenAI(base_url=s.url + "/v1", api_key="none", model="nano", max_tokens=200)
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}
    calls = model.bind_tools([tool]).invoke("How is the weather?").tool_calls
    assert [(c["name"], c["args"]) for c in calls] == [("get_weather", {"city": "Paris"})]


def test_litellm(server):
    more = {"model": "hosted_vllm/nano", "api_base": server.url + "/v1", "temperature": 0,
            "messages": [{"role": "user", "content": QUESTION}]}
    a = litellm.completion(**more)
    assert a.choices[0].message.content == PARIS
    assert a.usage.total_tokens > 0
    chunks = list(litellm.completion(stream=True, **more))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == PARIS
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]


def test_litellm_errors(server):
    """Its classes of errors come from our statuses and codes."""
    more = {"model": "hosted_vllm/nano", "api_base": server.url + "/v1", "num_retries": 0,
            "messages": [{"role": "user", "content": "x"}]}
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**more, "model": "hosted_vllm/other"})
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(**more, temperature=9)
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**{**more, "messages": [{"role": "user", "content": "word " * 9000}]})
