#!/usr/bin/env python3
"""`pagoda serve` on the null device against a bare libevent server that sends the same bytes.

    tests/bench/serve_bench.py BUILD [SECONDS [PART...]]

Prints a table; parts: whole answers a second, events of streams a second, gaps at 80 % load on a
device of 5 ms a step, first token of a cached prompt, memory of a connection. Both servers
run in turns (A B A B A B); medians are shown. "Of its own core": by the processor time that the
event loop's thread took. Needs a C compiler and libevent's headers.
"""
import atexit
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
STREAM_TOKENS = 200
CACHED = 2000
WHOLE = {"prompt": [7, 8, 9], "max_tokens": 1}
STREAM = {"prompt": [7, 8, 9], "max_tokens": STREAM_TOKENS, "ignore_eos": True, "stream": True}


class Pagoda:
    def __init__(self, build, *flags):
        self.process = subprocess.Popen(
            [build / "bin" / "pagoda", "serve", "--port", "0", "--disable-access-log", *flags],
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PAGODA_PLUGIN_PATH": str(build / "lib" / "pagoda")})
        atexit.register(self.process.kill)
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

    def loop_s(self):
        """Processor time of the event loop so far."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((t / "schedstat").read_text().split()[0]) / 1e9 for t in tasks
                   if (t / "comm").read_text() == "pagoda-http\n")


class Bare:
    """The bare server: 200 events a stream, `events` of them at a time."""

    def __init__(self, bench, step_us, events=1):
        event = bench.folder / f"event{events}"
        event.write_bytes((bench.folder / "event").read_bytes() * events)
        self.process = subprocess.Popen(
            [bench.tool, "serve", bench.folder / "body", event, str(STREAM_TOKENS // events),
             str(step_us)], stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def request_of(body, path=b"/v1/completions"):
    data = json.dumps(body).encode()
    return (b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data)) + data


class Bench:
    def __init__(self, build, seconds):
        self.build, self.seconds = build, seconds
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.tool = self.folder / "http_bench"
        subprocess.run(["cc", "-O2", "-o", self.tool, HERE / "http_bench.c", "-levent"],
                       check=True)
        self.write("whole", WHOLE)
        self.write("stream", STREAM)
        s = Pagoda(build, "--device", "null")
        (self.folder / "body").write_bytes(s.ask(WHOLE))
        (self.folder / "event").write_bytes(s.ask(STREAM).split(b"\n\n")[5] + b"\n\n")
        s.stop()

    def write(self, name, body, path=b"/v1/completions"):
        (self.folder / name).write_bytes(request_of(body, path))

    def load(self, server, connections, name, seconds=None):
        """Answers, events and bytes a second; p50 and p99 of gaps, of first bytes, in us."""
        run = subprocess.run([self.tool, "load", str(server.port), str(connections),
                              str(seconds or self.seconds), self.folder / name],
                             check=True, capture_output=True, text=True)
        return [float(v) for v in run.stdout.split()]

    def compare(self, title, connections, column, name, events=1):
        s = Pagoda(self.build, "--device", "null", "--max-num-seqs", "256")
        bare = Bare(self, 0, events)
        ours, theirs, own = [], [], []
        for _ in range(3):
            before = s.loop_s()
            ours.append(self.load(s, connections, name)[column])
            own.append(ours[-1] * self.seconds / (s.loop_s() - before))
            theirs.append(self.load(bare, connections, name)[column])
        bare.stop()
        s.stop()
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"| {title} | {a:,.0f} | {b:,.0f} | {100 * a / b:.0f} % | of its own core: "
              f"{statistics.median(own):,.0f} |")

    def whole(self):
        self.compare("whole answers a second, 32 connections", 32, 0, "whole")

    def events(self):
        self.compare("events a second, 64 streams; bare: an event a write", 64, 1, "stream")
        self.compare("the same; bare: all 200 in one write", 64, 1, "stream", STREAM_TOKENS)

    def gaps(self):
        s = Pagoda(self.build, "--device", "null{step_us=5000}", "--max-num-seqs", "64")
        bare = Bare(self, 5000)
        for title, server in (("pagoda", s), ("bare", bare)) * 2:
            p50, p99 = self.load(server, 51, "stream", max(5, self.seconds))[3:5]
            print(f"| gaps at 80 % load, 5 ms steps, {title}: p50, p99 | {p50 / 1000:.2f}, "
                  f"{p99 / 1000:.2f} ms | | {p99 / p50:.2f} |")
        bare.stop()
        s.stop()

    def first(self):
        s = Pagoda(self.build, "synthetic:llama-3.2-1b", "--device",
                   "null{step_us=1000;memory=64GiB}", "--max-model-len", "4096")
        ids = list(range(10, 10 + CACHED))
        self.write("hit", {"prompt": ids, "max_tokens": 1})
        self.write("short", {"prompt": ids[:10], "max_tokens": 1})
        self.write("step", {"prompt": ids, "max_tokens": 1000, "ignore_eos": True, "stream": True,
                            "return_token_ids": True})
        s.ask({"prompt": ids, "max_tokens": 1})
        step = self.load(s, 1, "step")[3] / 1000
        hit, short = self.load(s, 1, "hit")[5] / 1000, self.load(s, 1, "short")[5] / 1000
        s.stop()
        print(f"| p50 of a step behind {CACHED} tokens; of the first token of these cached | "
              f"{step:.3f}, {hit:.3f} ms | | {hit - step:.3f} ms; of a prompt of 10: {short:.3f} |")
        s = Pagoda(self.build, "--device", "null")
        text = " ".join(f"word{i % 97} and" for i in range(CACHED))
        count = CACHED + 1
        while count > CACHED:
            text = text[:len(text) * CACHED // count]
            count = json.loads(s.ask({"prompt": text}, "/tokenize"))["count"]
        self.write("text", {"prompt": text}, b"/tokenize")
        self.write("nothing", {"prompt": "x"}, b"/tokenize")
        took = [self.load(s, 1, name)[5] / 1000 for name in ("text", "nothing")]
        s.stop()
        print(f"| tokenizing as many (their ids are sent above), p50 | {took[0] - took[1]:.2f} ms "
              "| | |")

    def memory(self):
        s = Pagoda(self.build, "--device", "null{step_us=20000}", "--max-num-seqs", "256")
        s.ask(WHOLE)
        before = s.resident()
        idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(800)]
        time.sleep(0.5)
        of_idle = (s.resident() - before) / len(idle)
        before = s.resident()
        streams = []
        for _ in range(200):
            streams.append(socket.create_connection(("127.0.0.1", s.port)))
            streams[-1].sendall((self.folder / "stream").read_bytes())
        time.sleep(1.5)
        of_stream = (s.resident() - before) / len(streams)
        s.stop()
        print(f"| bytes of an idle connection; of a stream of {STREAM_TOKENS} tokens | "
              f"{of_idle:,.0f}; {of_stream:,.0f} | | |")


def main():
    parts = sys.argv[3:] or ["whole", "events", "gaps", "first", "memory"]
    bench = Bench(pathlib.Path(sys.argv[1]).resolve(), int((sys.argv[2:] or ["2"])[0]))
    print("| what | pagoda | bare | share |\n|---|---|---|---|")
    for part in parts:
        getattr(bench, part)()


if __name__ == "__main__":
    main()
