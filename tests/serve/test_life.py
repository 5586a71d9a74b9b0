"""Clients that leave, full queues, signals."""
import concurrent.futures
import json
import signal
import socket
import time

TEXT = "/v1/completions"
SLOW = ("--device", "null{step_us=20000}", "--max-num-seqs", "8")
LONG = {"prompt": "x", "max_tokens": 900, "ignore_eos": True}


def send(server, body):
    data = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
              b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return s


def wait_for(what, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def test_clients_that_leave(start):
    s = start(*SLOW)
    for stream in (False, True):
        open_ones = [send(s, {**LONG, "stream": stream}) for _ in range(8)]
        assert wait_for(lambda: s.metric("vllm:num_requests_running") == 8)
        begin = time.monotonic()
        for one in open_ones:
            one.close()
        assert wait_for(lambda: s.metric("vllm:num_requests_running") == 0)
        assert time.monotonic() - begin < 2
    assert s.metric("pagoda:clients_left_total") == 16


def test_many_clients_with_short_patience(start):
    """200 long requests whose clients give up; a new short one answers within 5 s."""
    s = start(*SLOW, "--max-num-queued-reqs", "400")
    open_ones = [send(s, LONG) for _ in range(200)]
    time.sleep(0.5)
    for one in open_ones:
        one.close()
    begin = time.monotonic()
    status, _ = s.json(TEXT, {"prompt": "x", "max_tokens": 2})
    assert status == 200
    assert time.monotonic() - begin < 5


def test_full_queue(start):
    s = start(*SLOW, "--max-num-queued-reqs", "2", "--max-num-seqs", "2")
    running = [send(s, {**LONG, "stream": True}) for _ in range(2)]
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 2)
    queued = [send(s, LONG) for _ in range(2)]
    assert wait_for(lambda: s.metric("vllm:num_requests_waiting") == 2)
    status, headers, text = s.request(TEXT, LONG)
    assert status == 429 and float(headers["Retry-After"]) >= 1
    assert json.loads(text)["error"]["code"] == "queue_full"
    for one in running + queued:
        one.close()
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 0)
    assert s.json(TEXT, {"prompt": "x", "max_tokens": 1})[0] == 200


def test_slow_readers_do_not_hold_others(start):
    s = start("--device", "null", "--max-num-seqs", "8", "--max-model-len", "1000")
    lazy = []
    for _ in range(4):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", s.port))
        body = json.dumps({"prompt": ["x"] * 40, "max_tokens": 900, "ignore_eos": True,
                           "stream": True}).encode()
        one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                    b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        lazy.append(one)
    begin = time.monotonic()
    assert s.json(TEXT, {"prompt": "x", "max_tokens": 5})[0] == 200
    assert time.monotonic() - begin < 5
    assert wait_for(lambda: s.metric("pagoda:slow_readers_total") == 4, 30)
    for one in lazy:
        one.close()


def test_drain_loses_nothing(start):
    s = start(*SLOW, "--shutdown-timeout", "20")
    body = {"prompt": "x", "max_tokens": 60, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(s.json, TEXT, body) for _ in range(8)]
        assert wait_for(lambda: s.metric("vllm:num_requests_running") == 8)
        s.process.send_signal(signal.SIGTERM)
        for answer in answers:
            status, a = answer.result()
            assert status == 200 and a["usage"]["completion_tokens"] == 60
    assert s.process.wait(10) == 0


def test_shutdown_timeout_ends_with_an_error(start):
    s = start(*SLOW, "--shutdown-timeout", "1")
    stream = send(s, {**LONG, "stream": True})
    whole = send(s, LONG)
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 2)
    begin = time.monotonic()
    s.process.send_signal(signal.SIGTERM)
    got = b""
    while piece := stream.recv(65536):
        got += piece
    assert b'data: {"error":' in got
    refused = whole.recv(65536)
    assert refused.startswith(b"HTTP/1.1 503")
    assert s.process.wait(10) == 0
    assert time.monotonic() - begin < 6


def test_second_signal_ends_at_once(start):
    s = start(*SLOW, "--shutdown-timeout", "600")
    one = send(s, {**LONG, "stream": True})
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 1)
    s.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert s.process.poll() is None
    s.process.send_signal(signal.SIGINT)
    assert s.process.wait(5) == 0
    one.close()


def test_idle_is_quiet(server):
    def used():
        with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    server.json(TEXT, {"prompt": "x", "max_tokens": 1})
    time.sleep(0.5)
    before = used()
    time.sleep(2)
    assert used() - before <= 1  # hundredths of a second


def test_silent_streams_get_comments(start):
    """Before the first token and between tokens: a comment in every second of silence."""
    s = start("--device", "null{step_us=2500000}", "--keep-alive-s", "1")
    _, headers, text = s.request(TEXT, {"prompt": "x", "max_tokens": 2, "ignore_eos": True,
                                        "stream": True})
    assert headers["Content-Type"] == "text/event-stream"
    parts = [part[:6] for part in text.split("\n\n") if part]
    first = parts.index("data: ")
    assert 1 <= first <= 3 and parts[:first] == [": ping"] * first
    assert 1 <= parts[first:].count(": ping") <= 3 and text.endswith("data: [DONE]\n\n")
