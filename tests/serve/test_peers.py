"""tools/peers/server.py against a stand-in for llama-server whose times are known."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import BUILD, PROGRAM

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "peers" / "server.py"
PROMPT, ANSWER = 12, 6
# First token after 60 ms, one every 8 ms; 503 while it loads; notes what it is asked.
STAND_IN = """#!{python}
import http.server, json, sys, time
if "--version" in sys.argv:
    sys.exit(print("version: 4711 (abcdef)", file=sys.stderr))
value = {{a: b for a, b in zip(sys.argv, sys.argv[1:])}}
begin = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args):
        pass
    def do_GET(self):
        self.send_response(200 if time.monotonic() - begin > 0.2 else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open({notes!r}, "a") as f:
            f.write(json.dumps([self.path, value["-np"], value["-c"], value["-t"], body]) + "\\n")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(body["max_tokens"] - {missing}):
            time.sleep(0.06 if i == 0 else 0.008)
            self.event({{"choices": [{{"index": 0, "text": "x", "finish_reason": None}}]}})
        self.event({{"choices": [], "usage": {{"prompt_tokens": len(body["prompt"]),
                   "completion_tokens": body["max_tokens"] - {missing}}}}})
        self.wfile.write(b"data: [DONE]\\n\\n")
        self.close_connection = True
    def event(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\\n\\n")
        self.wfile.flush()
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64
Server(("127.0.0.1", int(value["--port"])), Handler).serve_forever()
"""


@pytest.fixture(name="nano", scope="module")
def fixture_nano(tmp_path_factory):
    path = tmp_path_factory.mktemp("nano") / "nano.gguf"
    subprocess.run([PROGRAM, "quantize", "nano", path, "--type", "q8_0"], check=True,
                   capture_output=True)
    return path


def stand_in(folder, missing=0):
    path = folder / "llama-server"
    path.write_text(STAND_IN.format(python=sys.executable, notes=str(folder / "notes"),
                                    missing=missing))
    path.chmod(0o755)
    return path


def compare(*flags):
    return subprocess.run(
        [sys.executable, TOOL, PROGRAM, *flags, "--input-len", str(PROMPT), "--output-len",
         str(ANSWER), "--per-user", "2"], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PAGODA_PLUGIN_PATH": str(BUILD / "lib" / "pagoda")})


def rows(text):
    """{(users, server): numbers}"""
    found = re.findall(r"^\| (\d+) \| ([a-z-]+) \| (.*) \|$", text, re.M)
    return {(int(users), name): [float(v) for v in re.findall(r"[\d.]+", rest)]
            for users, name, rest in found}


def test_two_servers(nano, tmp_path):
    run = compare(nano, "--llama-server", stand_in(tmp_path), "--users", "1", "4", "--rounds", "2")
    assert run.returncode == 0, run.stderr
    assert "version: 4711" in run.stdout
    assert len(re.findall(r"^Limits in round [12] .*: read [1-9]", run.stdout, re.M)) == 2
    got = rows(run.stdout)
    for users in (1, 4):
        per_s, ttft, ttft99, itl, itl99 = got[users, "llama-server"]
        assert 60 <= ttft <= ttft99 and 8 <= itl <= itl99
        assert 0 < per_s < users / (0.06 + (ANSWER - 1) * 0.008)
        ours = got[users, "pagoda"]
        assert ours[0] > 0 and 0 < ours[1] <= ours[2] and ours[3] <= ours[4]
        assert got[users, "ratio"][0] > 0
    turns = re.findall(r"round (\d), (\d) users, ([a-z-]+)", run.stderr)
    assert [t[2] for t in turns] == (["pagoda", "llama-server"] * 2 +
                                     ["llama-server", "pagoda"] * 2)
    asked = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    # A round: one to warm and two for one user; one to warm and eight for four.
    assert [a[1] for a in asked] == (["1"] * 3 + ["4"] * 9) * 2
    assert {a[0] for a in asked} == {"/v1/completions"} and {a[3] for a in asked} == {"2"}
    for _, slots, context, _, body in asked:
        assert len(body["prompt"]) == PROMPT and body["max_tokens"] == ANSWER
        assert body["ignore_eos"] and body["stream"] and body["temperature"] == 0
        assert int(context) >= int(slots) * (PROMPT + ANSWER)
    # No server gets a prompt twice, so none answers from a cache.
    prompts = [tuple(a[4]["prompt"]) for a in asked]
    for first, n in ((0, 3), (3, 9), (12, 3), (15, 9)):
        assert len(set(prompts[first:first + n])) == n
    assert not set(prompts[:12]) & set(prompts[12:])


def test_alone(nano):
    run = compare(nano, "--users", "2", "--rounds", "1")
    assert run.returncode == 0, run.stderr
    assert set(rows(run.stdout)) == {(2, "pagoda")}


def test_what_fails_is_named(nano, tmp_path):
    run = compare(nano, "--llama-server", stand_in(tmp_path, missing=1), "--users", "1", "--rounds",
                  "1")
    assert run.returncode == 1 and "tokens came" in run.stderr and "| ratio |" not in run.stdout
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such model >&2\nexit 3\n")
    broken.chmod(0o755)
    run = compare(nano, "--llama-server", broken, "--users", "1", "--rounds", "1")
    assert run.returncode == 1 and "did not start: no such model" in run.stderr
    run = compare(tmp_path / "absent.gguf")
    assert run.returncode == 2 and "absent.gguf" in run.stderr
