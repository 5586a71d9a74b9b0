#!/usr/bin/env python3
"""`pagoda serve` and llama-server on the same GGUF file, by turns, under the same client.

    tools/peers/server.py build/bin/pagoda FILE.gguf [--llama-server PATH] > table.md

The client is `pagoda bench serve`: every user asks again as soon as he has his answer, with
streams, prompts of token ids (others in every round, the same for both), greedy, no end before
--output-len. A round measures the machine's limits (`pagoda bench latency`), then, for each number
of users, starts one server, warms it with one request, loads it, ends it, and does the same with
the other; odd rounds begin with the other one. llama-server gets as many slots as there are users
and the same threads; --llama-args adds to that. Without --llama-server pagoda is measured alone.
The table has medians over the rounds, and the limits of every round. Build llama-server outside of
this tree, with its native flags. Needs Python 3.9, nothing else.
"""

import argparse
import contextlib
import json
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

KEYS = ("request_throughput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms")
START_S = 600


class Trouble(Exception):
    pass


def call_json(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Trouble(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def is_ready(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def running(command, port):
    """The address of a server, from its first 200 of /health to its end."""
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log)
        try:
            end = time.monotonic() + START_S
            while not is_ready(url):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    last = log.read().decode(errors="replace").strip().splitlines()[-1:]
                    raise Trouble(f"{command[0]} did not start: {''.join(last)}")
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Comparison:
    def __init__(self, args):
        self.args = args
        self.context = args.input_len + args.output_len + 16
        self.names = ["pagoda"] + (["llama-server"] if args.llama_server else [])

    def command(self, name, users, port):
        a = self.args
        if name == "pagoda":
            return [a.program, "serve", a.file, "--port", port, "--device", a.device, "--threads",
                    a.threads, "--max-num-seqs", users, "--max-model-len", self.context,
                    "--disable-access-log"]
        return [a.llama_server, "-m", a.file, "--host", "127.0.0.1", "--port", port, "-t",
                a.threads, "-tb", a.threads, "-np", users, "-c", users * self.context,
                *shlex.split(a.llama_args)]

    def load(self, url, users, requests, seed):
        got = call_json(self.args.program, "bench", "serve", "--base-url", url, "--json",
                        "--max-concurrency", users, "--num-prompts", requests, "--seed", seed,
                        "--random-input-len", self.args.input_len, "--random-output-len",
                        self.args.output_len)
        if got["failed"] > 0 or got["total_output_tokens"] != requests * self.args.output_len:
            raise Trouble(f"{url}: {got['failed']} of {requests} requests failed, "
                          f"{got['total_output_tokens']} tokens came")
        return got

    def measure(self, name, users, number):
        port = free_port()
        with running(self.command(name, users, port), port) as url:
            self.load(url, 1, 1, 1000 + number)
            return self.load(url, users, users * self.args.per_user, number)

    def limits(self):
        """Of now: reads in GB/s, f32, bf16 and int8 dot products in G/s."""
        run = call_json(self.args.program, "bench", "latency", self.args.file, "--device",
                        self.args.device, "--threads", self.args.threads, "--input-len", 16,
                        "--output-len", 2, "--repeat", 1, "--warmup", 0, "--max-model-len", 64,
                        "--json")
        found = run["samples"][0]["limits_after"]
        return ", ".join(f"{key.replace('_', ' ')} {found[key] / 1e9:.0f}" for key in
                         ("read", "dot_f32", "dot_bf16", "dot_i8") if found.get(key))

    def round(self, number):
        """{(users, name): what the client says}"""
        got = {}
        for users in self.args.users:
            for name in self.names if number % 2 == 0 else self.names[::-1]:
                got[users, name] = self.measure(name, users, number)
                print(f"round {number + 1}, {users} users, {name}: "
                      f"{got[users, name]['request_throughput']:.2f} requests/s", file=sys.stderr)
        return got


def version_of(program):
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "version" in line]
    return lines[0].strip() if lines else "of unknown version"


def print_table(args, names, rounds, limits):
    print(f"{pathlib.Path(args.file).name}, {args.threads} threads, prompts of {args.input_len} "
          f"and answers of {args.output_len} tokens, {args.per_user} requests a user, "
          f"{len(rounds)} rounds; pagoda" +
          (f", llama-server ({version_of(args.llama_server)})" if len(names) > 1 else "") + "\n")
    for i, text in enumerate(limits):
        print(f"Limits in round {i + 1} (GB/s, G/s): {text}" +
              ("  " if i + 1 < len(limits) else "\n"))
    print("| users | server | requests/s | TTFT p50, p99 ms | ITL p50, p99 ms |"
          "\n|---|---|---|---|---|")
    for users in args.users:
        for name in names:
            per_s, *ms = (statistics.median(r[users, name][key] for r in rounds) for key in KEYS)
            print(f"| {users} | {name} | {per_s:.2f} | {ms[0]:.1f}, {ms[1]:.1f} | "
                  f"{ms[2]:.2f}, {ms[3]:.2f} |")
        if len(names) > 1:
            pairs = [[r[users, name] for name in names] for r in rounds]
            ratios = [statistics.median(a[key] / max(b[key], 1e-9) for a, b in pairs)
                      for key in KEYS]
            print("| {} | ratio | {:.2f} | {:.2f}, {:.2f} | {:.2f}, {:.2f} |"
                  .format(users, *ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the built pagoda")
    parser.add_argument("file", help="a GGUF file")
    parser.add_argument("--llama-server", help="a built llama-server")
    parser.add_argument("--llama-args", default="", help="further flags for it, as one text")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--per-user", type=int, default=4, help="requests a user (default 4)")
    parser.add_argument("--input-len", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="pagoda's device (default cpu)")
    args = parser.parse_args()
    for path in filter(None, (args.program, args.file, args.llama_server)):
        if not pathlib.Path(path).is_file():
            parser.error(f"{path}: no such file")
    c = Comparison(args)
    rounds, limits = [], []
    try:
        for number in range(args.rounds):
            limits.append(c.limits())
            rounds.append(c.round(number))
    except Trouble as trouble:
        sys.exit(str(trouble))
    print_table(args, c.names, rounds, limits)


if __name__ == "__main__":
    main()
