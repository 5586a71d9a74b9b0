"""Decode of the same shapes by PyTorch: SDPA over a static cache, eager and compiled.

  torch_peer.py --json FILE

Random bf16 weights, greedy choice on the device, batches of 1 and 64 with 1024 tokens in the cache.
Prints and writes tokens a second, the best of three runs of 32 steps.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F

#        layers hidden heads kv_heads dim inner  vocab
SHAPES = {
    "llama-3.2-1b": (16, 2048, 32, 8, 64, 8192, 128256),
    "llama-3.1-8b": (32, 4096, 32, 8, 128, 14336, 128256),
}
CONTEXT, STEPS = 1024, 32


def weight(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02


class Model:
    def __init__(self, shape, batch):
        self.layers, h, self.heads, self.kv, self.dim, inner, vocab = SHAPES[shape]
        q, k = self.heads * self.dim, self.kv * self.dim
        self.embed = weight(vocab, h)
        self.w = [(weight(q + 2 * k, h), weight(h, q), weight(2 * inner, h), weight(h, inner))
                  for _ in range(self.layers)]
        self.norm = torch.ones(h, device="cuda", dtype=torch.bfloat16)
        room = CONTEXT + STEPS
        self.keys = [torch.zeros(batch, self.kv, room, self.dim, device="cuda",
                                 dtype=torch.bfloat16) for _ in range(self.layers)]
        self.values = [torch.zeros_like(x) for x in self.keys]
        angle = torch.outer(torch.arange(room, device="cuda"),
                            500000.0 ** (-torch.arange(0, self.dim, 2, device="cuda") / self.dim))
        self.cos = torch.cos(angle).repeat(1, 2).bfloat16()
        self.sin = torch.sin(angle).repeat(1, 2).bfloat16()

    def turn(self, x, at):
        a, b = x.chunk(2, dim=-1)
        return x * self.cos[at] + torch.cat((-b, a), dim=-1) * self.sin[at]

    def step(self, ids, at, mask):
        x = self.embed[ids]
        n = ids.shape[0]
        for i, (qkv, out, gate_up, down) in enumerate(self.w):
            y = F.linear(F.rms_norm(x, x.shape[-1:], self.norm), qkv)
            q, k, v = y.view(n, -1, self.dim).split((self.heads, self.kv, self.kv), dim=1)
            self.keys[i].index_copy_(2, at, self.turn(k, at)[:, :, None])
            self.values[i].index_copy_(2, at, v[:, :, None])
            y = F.scaled_dot_product_attention(self.turn(q, at)[:, :, None], self.keys[i],
                                               self.values[i], attn_mask=mask, enable_gqa=True)
            x = x + F.linear(y.reshape(n, -1), out)
            g, u = F.linear(F.rms_norm(x, x.shape[-1:], self.norm), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(g) * u, down)
        return F.linear(F.rms_norm(x, x.shape[-1:], self.norm), self.embed).argmax(-1)


@torch.no_grad()
def rate(step, batch):
    best = 0.0
    places = torch.arange(CONTEXT + STEPS, device="cuda")
    for _ in range(3):
        ids = torch.zeros(batch, device="cuda", dtype=torch.long)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(STEPS):
            at = places[CONTEXT + i:CONTEXT + i + 1]
            ids = step(ids, at, (places <= at)[None, None, None])
        torch.cuda.synchronize()
        best = max(best, batch * STEPS / (time.perf_counter() - begin))
    return round(best, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    found = {}
    for shape in SHAPES:
        for batch in (1, 64):
            model = Model(shape, batch)
            cell = found[f"{shape}-b{batch}"] = {"eager": rate(model.step, batch)}
            try:
                cell["compiled"] = rate(torch.compile(model.step, mode="reduce-overhead"), batch)
            except Exception as error:  # what torch.compile cannot do is stated, not hidden
                cell["compiled"] = f"failed: {type(error).__name__}"
            print(shape, batch, cell, flush=True)
            del model
            torch.cuda.empty_cache()
            with open(options.json, "w", encoding="utf-8") as f:
                json.dump(found, f)


if __name__ == "__main__":
    main()
