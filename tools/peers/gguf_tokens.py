"""Greedy tokens of a GGUF file, by this tree's program and by llama.cpp.

    python3 -m venv venv && venv/bin/pip install llama-cpp-python     (outside of the tree)
    venv/bin/python tools/peers/gguf_tokens.py build/bin/pagoda FILE.gguf... [--device cpu]

Both get the same token ids (20 questions of tests/nano, by the file's own tokenizer) and make 64
tokens, the likeliest each time. The peer then walks over this tree's tokens: where they differ from
its own choice, the distance of the two logits says how near the tie was, as a share of the largest
magnitude. Equal, or a near tie (--tie, default 0.02): exit 0. Prints one line a file.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_PROMPTS, N_TOKENS = 20, 64


def prompts():
    """The questions as a chat would send them."""
    lines = (ROOT / "tests/nano/questions.jsonl").read_text(encoding="utf-8").splitlines()
    return ["".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n"
                    for m in json.loads(line)["messages"]) + "<|im_start|>assistant\n"
            for line in lines[::len(lines) // N_PROMPTS][:N_PROMPTS]]


def call(*command, text):
    done = subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def own_tokens(program, model, device, text):
    """(ids of the prompt, ids of the answer)"""
    ids = call(program, "tokenize", model, "--json", text=text)
    answer = call(program, "run", model, "-f", "-", "--json", "-n", str(N_TOKENS), "-t", "0",
                  "--ignore-eos", "--device", device, "--max-model-len", "512", text=text)
    assert answer["usage"]["prompt_tokens"] == len(ids)
    return ids, answer["token_ids"]


class Peer:
    def __init__(self, model):
        self.llm = llama_cpp.Llama(model, n_ctx=512, n_batch=512, n_threads=2, verbose=False)
        self.n_vocab = self.llm.n_vocab()

    def logits(self, ids):
        self.llm.eval(ids)
        at = llama_cpp.llama_get_logits_ith(self.llm.ctx, -1)
        return np.ctypeslib.as_array(at, shape=(self.n_vocab,)).copy()

    def compare(self, prompt, tokens):
        """(equal tokens before the first difference, gap there or 0)."""
        self.llm.reset()
        logits = self.logits(prompt)
        for n, token in enumerate(tokens):
            best = int(logits.argmax())
            if best != token:
                return n, float(logits[best] - logits[token]) / float(np.abs(logits).max())
            logits = self.logits([token])
        return len(tokens), 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tie", type=float, default=0.02)
    args = parser.parse_args()
    failed = False
    for model in args.models:
        own = [own_tokens(args.program, model, args.device, text) for text in prompts()]
        peer = Peer(model)
        results = [peer.compare(ids, answer) for ids, answer in own]
        whole = sum(n == N_TOKENS for n, _ in results)
        gap = max(g for _, g in results)
        bad = gap > args.tie or any(len(answer) != N_TOKENS for _, answer in own)
        failed |= bad
        print(f"{pathlib.Path(model).name}: {whole} of {len(results)} prompts equal in all "
              f"{N_TOKENS} tokens; widest tie that went another way {gap:.4f}"
              f"{' FAILED' if bad else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
