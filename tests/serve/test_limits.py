"""What callers, connections and steps may take: watchdog, deadlines, keys, queue."""
import json
import socket
import time

import pytest

from test_life import LONG, SLOW, send, wait_for

TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"


def stream_until_end(server, body, headers=None):
    """Status and bytes of a stream, whatever its end."""
    return server.request(TEXT, {**body, "stream": True}, headers=headers)[::2]


def test_watchdog(start):
    """A step that does not end: unready, told, counted; ready again when it has ended."""
    s = start("--device", "null{step_us=4000000}", "--watchdog-s", "1")
    waiting = send(s, LONG)
    stream = send(s, {**LONG, "stream": True})
    assert s.request("/readyz")[0] == 200
    assert wait_for(lambda: s.request("/readyz")[0] == 503, 6)
    assert s.request("/livez")[0] == 200 and s.request("/health")[0] == 503
    assert waiting.recv(65536).startswith(b"HTTP/1.1 503")
    assert b"does not answer" in stream.recv(65536)
    status, headers, text = s.request(TEXT, LONG)
    assert status == 503 and headers["Retry-After"]
    assert json.loads(text)["error"]["code"] == "stuck"
    assert s.metric("pagoda:stuck_steps_total") == 1 and s.metric("pagoda:stuck") == 1
    assert any("watchdog" in line for line in s.lines)
    assert wait_for(lambda: s.request("/readyz")[0] == 200, 10)
    assert s.metric("pagoda:stuck") == 0


def test_deadline_of_a_request(start):
    s = start(*SLOW)
    begin = time.monotonic()
    status, headers, text = s.request(TEXT, {**LONG, "timeout": 0.3})
    assert 0.3 <= time.monotonic() - begin < 1.5
    assert status == 408 and json.loads(text)["error"]["code"] == "timeout"
    status, text = stream_until_end(s, {**LONG, "timeout": 0.3})
    assert status == 200 and text.count("data: {") > 3
    last = text.strip().rsplit("data: ", 1)[1]
    assert json.loads(last)["error"]["code"] == "timeout"
    assert s.metric("pagoda:request_timeouts_total") == 2
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 0)
    status, a = s.json(TEXT, {"prompt": "x", "max_tokens": 2, "timeout": 60})
    assert status == 200 and a["usage"]["completion_tokens"] == 2
    for wrong in (0, -1, 1e9, "soon"):
        status, a = s.json(TEXT, {"prompt": "x", "timeout": wrong})
        assert status == 400 and a["error"]["param"] == "timeout"


def test_deadline_of_the_server(start):
    s = start(*SLOW, "--request-timeout", "1")
    begin = time.monotonic()
    assert s.request(TEXT, {**LONG, "timeout": 50})[0] == 408
    assert 1 <= time.monotonic() - begin < 3


def test_requests_of_a_key(start):
    s = start(*SLOW, "--key-max-requests", "2", "--api-key", "a", "--api-key", "b")
    a, b = ({"Authorization": f"Bearer {key}"} for key in "ab")

    def send_as(key):
        data = json.dumps({**LONG, "stream": True}).encode()
        one = socket.create_connection(("127.0.0.1", s.port), timeout=30)
        one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s"
                    b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
                    (key, len(data)) + data)
        return one

    open_ones = [send_as(b"a"), send_as(b"a")]

    def running():
        text = s.request("/metrics", headers=b)[2]
        return "vllm:num_requests_running{" in text and any(
            line.startswith("vllm:num_requests_running{") and line.endswith(" 2")
            for line in text.splitlines())

    assert wait_for(running)
    status, headers, text = s.request(TEXT, {"prompt": "x", "max_tokens": 1}, headers=a)
    assert status == 429 and headers["Retry-After"] == "1"
    assert json.loads(text)["error"]["code"] == "too_many_requests"
    assert s.request(TEXT, {"prompt": "x", "max_tokens": 1}, headers=b)[0] == 200
    for one in open_ones:
        one.close()
    assert wait_for(lambda: s.request(TEXT, {"prompt": "x", "max_tokens": 1},
                                      headers=a)[0] == 200)


def test_tokens_of_a_key(start):
    s = start("--device", "null", "--key-tokens-per-minute", "600")
    status, a = s.json(TEXT, {"prompt": "x", "max_tokens": 620, "ignore_eos": True})
    assert status == 200 and a["usage"]["total_tokens"] > 620
    status, headers, text = s.request(TEXT, {"prompt": "x", "max_tokens": 1})
    assert status == 429 and 1 <= int(headers["Retry-After"]) <= 60
    assert json.loads(text)["error"]["code"] == "tokens_used_up"
    # Ten tokens a second: what was too much is made good, not forgotten for a minute.
    assert wait_for(lambda: s.request(TEXT, {"prompt": "x", "max_tokens": 1})[0] == 200, 8)


def test_connections(start):
    s = start("--device", "null", "--max-connections", "20", "--disable-access-log")
    idle = [socket.create_connection(("127.0.0.1", s.port), timeout=10) for _ in range(20)]
    time.sleep(0.1)
    one_more = socket.create_connection(("127.0.0.1", s.port), timeout=10)
    got = b""
    while piece := one_more.recv(65536):
        got += piece
    assert got.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in got
    error = json.loads(got.split(b"\r\n\r\n")[1])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    idle.pop().close()
    assert wait_for(lambda: s.request("/livez")[0] == 200, 5)
    for one in idle:
        one.close()
    assert wait_for(lambda: s.metric("pagoda:open_connections") == 1, 5)


def test_slow_headers(start):
    """Slowloris: a head that never ends, and a body that trickles."""
    s = start("--device", "null", "--header-timeout", "1")
    for begin in (b"GET / HTTP/1.1\r\nX: a", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                  b"Content-Length: 5000\r\n\r\n{"):
        with socket.create_connection(("127.0.0.1", s.port), timeout=10) as one:
            one.sendall(begin)
            started = time.monotonic()
            got = b""
            while piece := one.recv(65536):
                got += piece
            assert got.startswith(b"HTTP/1.1 408 ") and b'"error"' in got
            assert 0.9 < time.monotonic() - started < 4
    assert s.json(TEXT, {"prompt": "x", "max_tokens": 1})[0] == 200


def test_queued_tokens(start):
    s = start(*SLOW, "--max-num-seqs", "1", "--max-num-queued-tokens", "100")
    running = send(s, {**LONG, "stream": True})
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 1)
    queued = send(s, {**LONG, "prompt": [5] * 90})
    assert wait_for(lambda: s.metric("vllm:num_requests_waiting") == 1)
    status, headers, text = s.request(TEXT, {**LONG, "prompt": [5] * 20})
    assert status == 429 and headers["Retry-After"] and "90" in text
    assert s.metric("vllm:admission_rejections_total") == 1
    text = s.request("/metrics")[2]
    for reason, n in (("capacity", 1), ("deferred", 0)):
        assert (f'vllm:num_requests_waiting_by_reason{{model_name="nano",engine="0",'
                f'reason="{reason}"}} {n}\n') in text
    for one in (running, queued):
        one.close()


@pytest.mark.parametrize("stream", [False, True])
def test_fault_of_one_request(start, stream):
    """Logits that are not numbers end that request alone, whatever stands beside it."""
    s = start("--device", "null{step_us=5000;nan_after=77}", "--max-num-seqs", "8")
    good = [send(s, {**LONG, "max_tokens": 100, "stream": True, "return_token_ids": True})
            for _ in range(4)]
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 4)
    body = {"prompt": [5, 6, 77], "max_tokens": 10, "stream": stream}
    status, _, text = s.request(TEXT, body)
    if stream:
        assert status == 200
        error = json.loads(text.strip().rsplit("data: ", 1)[1])["error"]
    else:
        assert status == 500
        error = json.loads(text)["error"]
    assert error["type"] == "server_error" and "0x" not in error["message"]
    assert s.metric("vllm:corrupted_requests_total") == 1
    assert s.json(TEXT, {"prompt": [5, 6, 78], "max_tokens": 3})[0] == 200
    for one in good:
        got = b""
        while b"[DONE]" not in got:
            piece = one.recv(65536)
            assert piece
            got += piece
        assert b'"error"' not in got
        one.close()
