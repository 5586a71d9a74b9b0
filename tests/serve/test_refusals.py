"""Wrong input: the four-key error object, nothing lost, the server alive."""
import json
import socket
import time

import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"

WRONG = [
    ({"prompt": "x", "temperature": 3}, 400, "temperature"),
    ({"prompt": "x", "temperature": "hot"}, 400, "temperature"),
    ({"prompt": "x", "top_p": -0.1}, 400, "top_p"),
    ({"prompt": "x", "n": 0}, 400, "n"),
    ({"prompt": "x", "n": 129}, 400, "n"),
    ({"prompt": "x", "n": 1.5}, 400, "n"),
    ({"prompt": "x", "best_of": 3}, 400, "best_of"),
    ({"prompt": "x", "max_tokens": -1}, 400, "max_tokens"),
    ({"prompt": "x", "max_tokens": 3, "min_tokens": 4}, 400, "min_tokens"),
    ({"prompt": "x", "presence_penalty": 2.1}, 400, "presence_penalty"),
    ({"prompt": "x", "stop": ["a"] * 17}, 400, "stop"),
    ({"prompt": "x", "stop": [1]}, 400, "stop"),
    ({"prompt": "x", "stop": ""}, 400, "stop"),
    ({"prompt": "x", "logit_bias": {"a": 1}}, 400, "logit_bias"),
    ({"prompt": "x", "logit_bias": {"1": 101}}, 400, "logit_bias"),
    ({"prompt": "x", "logprobs": 21}, 400, "logprobs"),
    ({"prompt": "x", "stream": "yes"}, 400, "stream"),
    ({"prompt": "x", "guided_json": {}}, 400, "guided_json"),
    ({"prompt": "x", "suffix": "y"}, 400, "suffix"),
    ({"prompt": [0, 10 ** 7]}, 400, "prompt"),
    ({"prompt": ["a", 5]}, 400, "prompt"),
    ({"prompt": {}}, 400, "prompt"),
    ({"prompt": ""}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": ["x"] * 1025}, 400, "prompt"),
    ({"prompt": "x", "cache_salt": ""}, 400, "cache_salt"),
    ({"prompt": "x", "response_format": {"type": "json_object"}}, 400, "response_format"),
    ({}, 400, "prompt"),
    ({"prompt": "x", "model": "gpt-4"}, 404, "model"),
]


def check_error(status, body, want, param=None):
    assert status == want, body
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    if param is not None:
        assert body["error"]["param"] == param


@pytest.mark.parametrize("body,status,param", WRONG, ids=lambda v: json.dumps(v)[:40])
def test_wrong_fields(server, body, status, param):
    check_error(*server.json(TEXT, body), status, param)


@pytest.mark.parametrize("messages", [None, [], "hi", [5], [{}], [{"role": 5, "content": "x"}]])
def test_wrong_messages(server, messages):
    check_error(*server.json(CHAT, {"messages": messages}), 400, "messages")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"nul", b'{"prompt": "\xff"}', b"[" * 2000,
                                 b'{"prompt":' * 200])
def test_broken_json(server, raw):
    check_error(*server.json(TEXT, raw), 400)


def test_context_too_long(server):
    status, body = server.json(TEXT, {"prompt": [5] * 5000})
    check_error(status, body, 400, "prompt")
    assert body["error"]["code"] == "context_length_exceeded"
    assert "5000" in body["error"]["message"]


def test_routes_methods_types(server):
    check_error(*server.json("/nope"), 404)
    check_error(*server.json(TEXT), 405)
    check_error(*server.json("/v1/models", {}), 405)
    assert server.request(TEXT)[1]["Allow"] == "POST"
    assert server.request("/ping", method="PUT", body={})[1]["Allow"] == "GET, HEAD, POST"
    assert server.request("/v1/models", {})[1]["Allow"] == "GET, HEAD"
    check_error(*server.json(TEXT, b"a=b", headers={"Content-Type": "text/plain"}), 415)


def test_body_too_large(start):
    s = start("--max-body-mib", "1")
    check_error(*s.json(TEXT, {"prompt": "x" * (1 << 20)}), 413)
    assert s.json(TEXT, {"prompt": "x", "max_tokens": 1})[0] == 200


def test_host_of_another_site(server):
    """CVE-2024-28224: a name of somebody else's that points at loopback."""
    check_error(*server.json("/v1/models", headers={"Host": "evil.example"}), 403)
    for host in ("localhost:1", "127.0.0.1", "[::1]:80"):
        assert server.json("/v1/models", headers={"Host": host})[0] == 200


def test_keys(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# mine\nfirst-key\n\nsecond-key\n")
    s = start("--api-key-file", str(keys), env={"PAGODA_API_KEY": "third-key"})
    for path in ("/livez", "/readyz", "/health"):
        assert s.request(path)[0] == 200
    for path in ("/v1/models", "/metrics", "/version", "/load", "/openapi.json", "/tokenizer_info",
                 "/ping", "/invocations", "/v1/models/nano", "/nope"):
        status, headers, text = s.request(path)
        check_error(status, json.loads(text), 401)
        assert headers["WWW-Authenticate"] == "Bearer"
    for key, status in (("first-key", 200), ("second-key", 200), ("third-key", 200),
                        ("first-ke", 401), ("first-keyy", 401), ("", 401), ("# mine", 401)):
        assert s.request("/v1/models", headers={"Authorization": f"Bearer {key}"})[0] == status


def test_keys_do_not_share_prompts(start):
    """CVE-2025-46570: time of an answer tells what others asked."""
    s = start(env={"PAGODA_API_KEY": "a"}, *("--api-key", "b"))
    body = {"prompt": "a long enough text for several blocks of the cache " * 4, "max_tokens": 1}

    def cached(key):
        _, a = s.json(TEXT, body, headers={"Authorization": f"Bearer {key}"})
        return a["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("b") == 0
    assert cached("b") > 0


def test_cors(start, server):
    _, headers, _ = server.request("/v1/models", headers={"Origin": "http://page.example"})
    assert headers["Access-Control-Allow-Origin"] is None
    s = start("--allowed-origin", "http://page.example")
    _, headers, _ = s.request("/v1/models", headers={"Origin": "http://page.example"})
    assert headers["Access-Control-Allow-Origin"] == "http://page.example"
    _, headers, _ = s.request("/v1/models", headers={"Origin": "http://other.example"})
    assert headers["Access-Control-Allow-Origin"] is None
    status, headers, _ = s.request(TEXT, method="OPTIONS",
                                   headers={"Origin": "http://page.example"})
    assert status == 204 and "POST" in headers["Access-Control-Allow-Methods"]


def test_strict_fields(start, server):
    body = {"prompt": "x", "max_tokens": 1, "no_such_field": 1}
    assert server.json(TEXT, body)[0] == 200
    check_error(*start("--strict-fields").json(TEXT, body), 400)


def raw_exchange(server, data, half_close=True):
    """What comes back; a connection that the server resets is an answer too."""
    got = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        try:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            while piece := s.recv(65536):
                got += piece
        except OSError as error:
            assert not isinstance(error, TimeoutError)
    return got


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN = [
    (b"\x00\xff\x16\x03\x01", 400),
    (b"\r\nGET / HTTP/1.1\r\n\r\n", 400),
    (b"GET\r\n\r\n", 400),
    (b"get / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/9.9\r\n\r\n", 505),
    (b"GET / SPDY\r\n\r\n", 400),
    (b"GET /a b HTTP/1.1\r\n\r\n", 400),
    (b"GET //evil:99999x HTTP/1.1\r\n\r\n", 400),
    (b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
    (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
    (b"BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    (b"TRACE / HTTP/1.1\r\n\r\n", 405),
    (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nSpace : x\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nX: a\r\n folded\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n", 400),
    (b"GET / HTTP/1.1\rX: a\r\n\r\n", 400),
    (HEAD + b"\r\n", 411),
    (HEAD + b"Content-Length: -5\r\n\r\n", 400),
    (HEAD + b"Content-Length: 5, 5\r\n\r\n", 400),
    (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
    (HEAD + b"Content-Length: 999999999999\r\n\r\n", 413),
    (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400),
    (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 501),
    (CHUNKED + b"zz\r\n", 400),
    (CHUNKED + b"2;x=1\r\n{}\r\n0\r\n\r\n", 400),
    (CHUNKED + b"2\r\n{}x\r\n", 400),
    (CHUNKED + b"fffffffffff\r\n", 413),
    (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
    (b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 100000 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + b"".join(b"X: " + b"a" * 8000 + b"\r\n" for _ in range(5)), 431),
    (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 101 + b"\r\n", 431),
    (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", 414),
]


@pytest.mark.parametrize("data,status", BROKEN, ids=lambda d: repr(d)[:40])
def test_broken_http(server, data, status):
    """CVE-2025-48956 and its like: no crash, no hang, and the error object like everywhere."""
    got = raw_exchange(server, data)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), got[:200]
    assert b"content-type: application/json" in head.lower()
    assert b"connection: close" in head.lower()
    check_error(status, json.loads(body), status)
    assert server.request("/livez")[0] == 200


@pytest.mark.parametrize("size", [1, 3, 17])
def test_broken_http_in_pieces(server, size):
    """However the bytes are cut."""
    data = HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = b""
        try:
            for at in range(0, len(data), size):
                s.sendall(data[at:at + size])
            while piece := s.recv(65536):
                got += piece
        except OSError as error:
            assert not isinstance(error, TimeoutError)
    assert got.startswith(b"HTTP/1.1 400 ") and b'"error"' in got


def test_broken_behind_a_good_one(server):
    """A good request, then a broken one on the same connection: both are answered, in order."""
    body = b'{"prompt": "Once", "max_tokens": 3, "ignore_eos": true}'
    good = HEAD + (b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
                   len(body)) + body
    got = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        s.sendall(good)
        time.sleep(0.01)
        s.sendall(b"NONSENSE\r\n\r\n")
        while piece := s.recv(65536):
            got += piece
    assert got.startswith(b"HTTP/1.1 200 ") and b'"text_completion"' in got
    assert got.count(b"HTTP/1.1 400 ") == 1 and got.index(b"HTTP/1.1 400") > got.index(b"usage")


def test_chunked_body(server):
    body = b'{"prompt": "Once", "max_tokens": 3, "ignore_eos": true}'
    pieces = b"".join(b"%x\r\n%s\r\n" % (1, body[i:i + 1]) for i in range(len(body)))
    data = HEAD + (b"Connection: close\r\nContent-Type: application/json\r\n"
                   b"Transfer-Encoding: chunked\r\n\r\n") + pieces + b"0\r\nX: trailer\r\n\r\n"
    assert raw_exchange(server, data, half_close=False).startswith(b"HTTP/1.1 200 ")


def test_pipelined_while_answering(server):
    body = b'{"prompt": "Once upon", "max_tokens": 20, "ignore_eos": true}'
    one = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
           b"Content-Length: %d\r\n\r\n" % len(body)) + body
    last = one.replace(b"Host: localhost\r\n", b"Host: localhost\r\nConnection: close\r\n")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(one + one + last)
        got = b""
        while piece := s.recv(65536):
            got += piece
    assert got.count(b"HTTP/1.1 200") == 3
    assert got.count(b'"text_completion"') == 3
