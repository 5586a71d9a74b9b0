#!/usr/bin/env python3
"""`pagoda serve` on the null device against a bare libevent server that sends the same bytes.

    tests/bench/serve_bench.py BUILD [SECONDS]

Prints a table: whole answers a second, events of streams a second, gaps at 80 % load on a device of
5 ms a step, memory of a connection, time to the first token of a cached prompt. Both servers
run in turns (A B A B A B); medians are shown. Needs a C compiler and libevent's headers.
"""
import http.client
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "serve"))
STREAM_TOKENS = 200
CACHED = 2000


class Pagoda:
    def __init__(self, build, *flags):
        import os  # pylint: disable=import-outside-toplevel

        self.process = subprocess.Popen(
            [build / "bin" / "pagoda", "serve", "--port", "0", "--disable-access-log", *flags],
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PAGODA_PLUGIN_PATH": str(build / "lib" / "pagoda")})
        for line in self.process.stderr:
            if "://" in line:
                self.port = int(line.split(":")[-1].split("/")[0])
                break

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def ask(self, body, path="/v1/completions"):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return c.getresponse().read()

    def resident(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024


def request_of(body, path=b"/v1/completions"):
    data = json.dumps(body).encode()
    return (b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data)) + data


def cached_prompt(build, folder, load):
    """(a step at this context, the first token of a cached prompt, tokenizing it), in ms."""
    s = Pagoda(build, "synthetic:llama-3.2-1b", "--device",
               "null{step_us=1000;memory=64GiB}", "--max-model-len", "4096")
    ids = list(range(10, 10 + CACHED))
    (folder / "hit").write_bytes(request_of({"prompt": ids, "max_tokens": 1}))
    (folder / "step").write_bytes(request_of({"prompt": ids, "max_tokens": 1000,
                                              "ignore_eos": True, "stream": True,
                                              "return_token_ids": True}))
    s.ask({"prompt": ids, "max_tokens": 1})
    step = load(s.port, 1, "step")[3] / 1000
    first = 1000 / load(s.port, 1, "hit")[0]
    s.stop()
    s = Pagoda(build, "--device", "null")
    text = " ".join(f"word{i % 97} and" for i in range(CACHED))
    count, times = CACHED + 1, []
    while count > CACHED:
        text = text[:len(text) * CACHED // count]
        count = json.loads(s.ask({"prompt": text}, "/tokenize"))["count"]
    (folder / "text").write_bytes(request_of({"prompt": text}, b"/tokenize"))
    (folder / "nothing").write_bytes(request_of({"prompt": "x"}, b"/tokenize"))
    for name in ("text", "nothing"):
        times.append(1000 / load(s.port, 1, name)[0])
    s.stop()
    return step, first, times[0] - times[1]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    seconds = sys.argv[2] if len(sys.argv) > 2 else "2"
    folder = pathlib.Path(tempfile.mkdtemp())
    tool = folder / "http_bench"
    subprocess.run(["cc", "-O2", "-o", tool, HERE / "http_bench.c", "-levent"], check=True)
    whole = {"prompt": [7, 8, 9], "max_tokens": 1}
    stream = {"prompt": [7, 8, 9], "max_tokens": STREAM_TOKENS, "ignore_eos": True, "stream": True}
    (folder / "whole").write_bytes(request_of(whole))
    (folder / "stream").write_bytes(request_of(stream))

    def load(port, connections, name):
        run = subprocess.run([tool, "load", str(port), str(connections), seconds, folder / name],
                             check=True, capture_output=True, text=True)
        return [float(v) for v in run.stdout.split()]

    def bare(step_us, events=1):
        (folder / f"event{events}").write_bytes((folder / "event").read_bytes() * events)
        process = subprocess.Popen([tool, "serve", folder / "body", folder / f"event{events}",
                                    str(STREAM_TOKENS // events), str(step_us)],
                                   stdout=subprocess.PIPE, text=True)
        return process, int(process.stdout.readline())

    s = Pagoda(build, "--device", "null", "--max-num-seqs", "256")
    (folder / "body").write_bytes(s.ask(whole))
    (folder / "event").write_bytes(s.ask(stream).split(b"\n\n")[5] + b"\n\n")
    figures = {}
    for name, connections, column, file, events in (
            ("whole", 32, 0, "whole", 1), ("stream", 64, 1, "stream", 1),
            ("all at once", 64, 1, "stream", STREAM_TOKENS)):
        b, bare_port = bare(0, events)
        ours, theirs = [], []
        for _ in range(3):
            ours.append(load(s.port, connections, file)[column])
            theirs.append(load(bare_port, connections, file)[column])
        figures[name] = statistics.median(ours), statistics.median(theirs)
        b.terminate()
    s.stop()
    timed = Pagoda(build, "--device", "null{step_us=5000}", "--max-num-seqs", "64")
    b, bare_port = bare(5000)
    gaps = load(timed.port, 51, "stream")[3:], load(bare_port, 51, "stream")[3:]
    b.terminate()
    timed.stop()
    hit = cached_prompt(build, folder, load)
    many = Pagoda(build, "--device", "null{step_us=20000}", "--max-num-seqs", "256")
    many.ask(whole)
    before = many.resident()
    idle = [socket.create_connection(("127.0.0.1", many.port)) for _ in range(800)]
    time.sleep(0.5)
    of_idle = (many.resident() - before) / len(idle)
    before = many.resident()
    open_ones = []
    for _ in range(200):
        one = socket.create_connection(("127.0.0.1", many.port))
        one.sendall((folder / "stream").read_bytes())
        open_ones.append(one)
    time.sleep(1.5)
    of_stream = (many.resident() - before) / len(open_ones)
    many.stop()
    for name, text in (("whole", "whole answers a second, 32 connections"),
                       ("stream", "events a second, 64 streams; bare: an event a write"),
                       ("all at once", "the same; bare: all 200 in one write")):
        ours, theirs = figures[name]
        print(f"| {text} | {ours:,.0f} | {theirs:,.0f} | {100 * ours / theirs:.0f} % |")
    print(f"| gaps at 80 % load, 5 ms steps: p50, p99 | {gaps[0][0] / 1000:.2f}, "
          f"{gaps[0][1] / 1000:.2f} ms | {gaps[1][0] / 1000:.2f}, {gaps[1][1] / 1000:.2f} ms | |")
    print(f"| bytes of an idle connection | {of_idle:,.0f} | | |")
    print(f"| bytes of a stream of {STREAM_TOKENS} tokens | {of_stream:,.0f} | | |")
    print(f"| a step behind {CACHED} tokens, p50; first token of these cached | {hit[0]:.3f}, "
          f"{hit[1]:.3f} ms | | |")
    print(f"| tokenizing as many (their ids are sent above) | {hit[2]:.2f} ms | | |")


if __name__ == "__main__":
    main()
