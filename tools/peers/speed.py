#!/usr/bin/env python3
"""Speed of this tree's program and of llama.cpp on the same GGUF file, by turns.

    python3 -m venv venv                                                     (outside of the tree)
    CMAKE_ARGS=-DGGML_NATIVE=ON venv/bin/pip install llama-cpp-python --no-binary llama-cpp-python
    venv/bin/pip install gguf
    venv/bin/python tools/peers/speed.py build/bin/pagoda --files DIR > table.md

Files are of the Llama-3.2-1B shape with random blocks, made in DIR where they are not there. Every
round runs each case with `pagoda bench latency`, which measures the machine's limits before and
after, then with the peer's library in a process of its own that holds the model: same file, token
ids and number of threads, greedy, bf16 cache against the peer's f16. The table has medians over the
rounds, ratios of neighbours, and shares of the limits of that minute. "beside" runs next to two
processes that do nothing but compute. Packed weights are kept in DIR/cache.
"""

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import time

import peer_files

THREADS = 2
# (name, rows of the prompt, context of decoding, tokens, sequences)
CASES = [("512", 512, 16, 24, 1), ("2048", 2048, 1024, 16, 1)]
CASES += [(f"x{n}", 16, 16, 12, n) for n in (2, 4, 8, 16, 32)]
LONG = [("4k", 16, 4096, 12, 1), ("8k", 16, 8192, 12, 1)]
TITLES = {"512": ("prefill 512", "decode at 0"), "2048": ("prefill 2048", "decode at 1k"),
          "4k": (None, "decode at 4k"), "8k": (None, "decode at 8k"),
          "beside": ("prefill 512 beside", "decode beside")}


def status(pid, key):
    """MB of a line of /proc/PID/status."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1000
    return 0.0


def ids_of(seed, vocab, n):
    """The prompts of `pagoda bench`: SplitMix64 over the vocabulary."""
    state, out = seed, []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        out.append((z ^ (z >> 31)) % vocab)
    return out


class Peer:
    """llama.cpp through its C API."""

    def __init__(self, path):
        import llama_cpp  # only in the process that runs it
        self.lib, start = llama_cpp, time.monotonic()
        # Keeps a reference: the library calls it for as long as it lives.
        self.silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.silence, ctypes.c_void_p(0))
        self.model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.load_s = time.monotonic() - start
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.greedy = llama_cpp.llama_sampler_init_greedy()

    def decode(self, ctx, rows):
        """rows: (token, position, sequence, wants logits)."""
        batch = self.lib.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, pos, seq, out) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, pos, out
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, seq
        code = self.lib.llama_decode(ctx, batch)
        self.lib.llama_batch_free(batch)
        if code != 0:
            raise SystemExit(f"llama_decode: {code}")

    def prompt(self, ctx, n, seqs):
        """Prompts one after the other; the first tokens."""
        first = []
        for seq in range(seqs):
            ids = ids_of(seq, self.vocab, n)
            for at in range(0, n, 512):
                part = ids[at:at + 512]
                self.decode(ctx, [(t, at + i, seq, at + i == n - 1) for i, t in enumerate(part)])
            first.append(self.lib.llama_sampler_sample(self.greedy, ctx, -1))
        return first

    def run(self, n_in, context, n_out, seqs):
        """(prefill tokens/s, decode tokens/s) by means, as the other side."""
        params = self.lib.llama_context_default_params()
        params.n_ctx = seqs * (max(n_in, context) + n_out + 16)
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = seqs
        params.n_threads = params.n_threads_batch = THREADS
        ctx = self.lib.llama_init_from_model(self.model, params)
        memory = self.lib.llama_get_memory(ctx)
        start = time.monotonic()
        tokens = self.prompt(ctx, n_in, seqs)
        prefill = n_in * seqs / (time.monotonic() - start)
        if n_in != context:
            self.lib.llama_memory_clear(memory, True)
            tokens = self.prompt(ctx, context, seqs)
        start = time.monotonic()
        for step in range(n_out - 1):
            self.decode(ctx, [(t, context + step, s, True) for s, t in enumerate(tokens)])
            tokens = [self.lib.llama_sampler_sample(self.greedy, ctx, s) for s in range(seqs)]
        decode = (n_out - 1) * seqs / (time.monotonic() - start)
        self.lib.llama_free(ctx)
        return prefill, decode


def serve_peer(path, pipe):
    peer = Peer(path)
    pipe.send((peer.load_s, peer.lib.__version__, status("self", "VmRSS")))
    while (case := pipe.recv()) is not None:
        pipe.send(peer.run(*case))
    pipe.send(status("self", "VmHWM"))


def own(program, path, n_in, context, n_out, seqs):
    """One sample of `pagoda bench latency`, with what it says of itself."""
    done = subprocess.run(
        [program, "bench", "latency", path, "--input-len", str(n_in), "--context", str(context),
         "--output-len", str(n_out), "--batch-size", str(seqs), "--repeat", "1", "--warmup", "0",
         "--device", "cpu", "--threads", str(THREADS), "--json",
         "--cache", str(pathlib.Path(path).parent / "cache"),
         "--max-model-len", str(max(n_in, context) + n_out + 16)],
        capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    whole = json.loads(done.stdout)
    return {**whole, **whole["samples"][0]}


@contextlib.contextmanager
def busy(n):
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(args, kind, path):
    """{row title: [(ours, theirs, our share)]} and facts of both about loading and memory."""
    here, there = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=serve_peer, args=(path, there))
    worker.start()
    facts = {"peer": here.recv()}
    rows, limits = {}, []
    cases = [c for _ in range(args.rounds) for c in CASES] + (LONG if kind == args.long else [])
    cases += [("beside", *CASES[0][1:])] if kind == args.long else []
    for name, *case in [c for c in cases if not args.only or c[0] in args.only]:
        with busy(2 if name == "beside" else 0):
            mine = own(args.program, path, *case)
            here.send(case)
            theirs = here.recv()
        titles = TITLES.get(name, (None, f"decode, {name[1:]} sequences"))
        prefill, decode = mine["prefill"], mine["decode"]
        for title, ours, other, share in (
                (titles[0], prefill["tokens_per_s"], theirs[0], f"{prefill['share_dot']:.0%} dot"),
                (titles[1], decode["tokens_per_s"], theirs[1],
                 f"{decode['share_read']:.0%} reads, {decode['share_dot']:.0%} dot")):
            if title:
                rows.setdefault(title, []).append((ours, other, share))
                print(kind, title, f"{ours:.1f} {other:.1f} {share}", file=sys.stderr)
        limits += [mine["limits_before"], mine["limits_after"]]
        facts["own"] = (mine["load_ms"] / 1e3, mine["pagoda"], mine["resident_bytes"] / 1e6,
                        mine["peak_bytes"] / 1e6, mine["kv_bytes"] / 1e6)
    here.send(None)
    facts["peer_peak"] = here.recv()
    worker.join()
    return rows, facts, limits


def table(kind, path, rows, facts, limits):
    load, version, resident = facts["peer"]
    mine = facts["own"]
    reads = sorted(limit["read"] / 1e9 for limit in limits)
    dots = sorted(limit["dot_i8"] / 1e9 for limit in limits)
    print(f"\n### {kind}: {path.stat().st_size / 1e6:.0f} MB; pagoda {mine[1]}, llama-cpp-python "
          f"{version}\n\nLimits alongside: reads {reads[0]:.0f} to {reads[-1]:.0f} GB/s, int8 dot "
          f"{dots[0]:.0f} to {dots[-1]:.0f} Gop/s.\n\n| case | pagoda, tokens/s | share of the "
          "limit | llama.cpp, tokens/s | ratio |\n|---|---|---|---|---|")
    for title, got in rows.items():
        ours, theirs = (statistics.median(g[i] for g in got) for i in (0, 1))
        ratio = statistics.median(g[0] / g[1] for g in got)
        share = got[sorted(range(len(got)), key=lambda i: got[i][0])[len(got) // 2]][2]
        print(f"| {title} | {ours:.1f} | {share} | {theirs:.1f} | {ratio:.2f} |")
    print(f"| load, s | {mine[0]:.2f} | | {load:.2f} | |\n| resident after loading, MB | "
          f"{mine[2]:.0f} (KV {mine[4]:.0f}) | | {resident:.0f} (without a context) | |\n"
          f"| most resident of the last case, of all: MB | {mine[3]:.0f} | | "
          f"{facts['peer_peak']:.0f} | |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--files", type=pathlib.Path, required=True, help="where the files are")
    parser.add_argument("--shape", default="1b", choices=peer_files.SHAPES)
    parser.add_argument("--types", nargs="+", default=["q8_0", "q4_0", "q4_k", "bf16"])
    parser.add_argument("--long", default="q4_0", help="the type for 4k, 8k and busy neighbours")
    parser.add_argument("--only", nargs="+", help="names of cases: 512 2048 x2 .. x32 4k 8k beside")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    for kind in args.types:
        path = peer_files.make(args.files, args.shape, kind)
        table(kind, path, *measure(args, kind, path))


if __name__ == "__main__":
    main()
