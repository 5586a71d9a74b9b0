"""The openai package against the server."""
import asyncio

import openai
import pytest


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


def test_sync(client):
    a = client.chat.completions.create(model="nano", messages=MESSAGES, temperature=0)
    assert a.choices[0].message.content == "The capital of France is Paris."
    b = client.completions.create(model="nano", prompt="Once upon a time", max_tokens=4,
                                  temperature=0, logprobs=2)
    assert len(b.choices[0].logprobs.tokens) == 4
    assert [m.id for m in client.models.list()] == ["nano"]
    assert client.models.retrieve("nano").id == "nano"


def test_stream(client):
    text, ends = "", []
    with client.chat.completions.create(model="nano", messages=MESSAGES, temperature=0, stream=True,
                                        stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                ends.append(choice.finish_reason)
            usage = chunk.usage
    assert text == "The capital of France is Paris."
    assert [e for e in ends if e] == ["stop"]
    assert usage.completion_tokens > 0


def test_helper_stream(client):
    with client.chat.completions.stream(model="nano", messages=MESSAGES, temperature=0) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "The capital of France is Paris."


def test_async(server):
    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none") as client:
            answers = await asyncio.gather(*(client.chat.completions.create(
                model="nano", messages=MESSAGES, temperature=0) for _ in range(20)))
            return {a.choices[0].message.content for a in answers}

    assert asyncio.run(run()) == {"The capital of France is Paris."}


def test_errors_by_status(client, start):
    with pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(model="gpt", messages=MESSAGES)
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="nano", messages=MESSAGES, temperature=9)
    assert e.value.param == "temperature"
    s = start("--api-key", "secret")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=s.url + "/v1", api_key="wrong").models.list()
    assert openai.OpenAI(base_url=s.url + "/v1", api_key="secret").models.list().data
