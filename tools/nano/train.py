#!/usr/bin/env python3
"""Trains nano on the corpus that grammar.py writes, on two CPU cores or on a GPU.

What: reads documents chunk by chunk (they are made as they are needed, nothing is stored), trains
the model of model.py with AdamW and a cosine schedule, saves a checkpoint after every chunk from
which the same command resumes, and exports models/nano.

How: the documents of a chunk are sorted by length and cut into batches of about equal numbers of
tokens, so there is little padding, no packing mask, and every document starts at position 0 as it
does when the model is used. The loss counts the assistant's tokens (and plain text) fully and the
words of the user a little. The schedule goes by tokens, so a busy machine takes longer but does not
learn less.

Usage: train.py [--out FOLDER] [--work FOLDER] [--tokens N] [--lr LR] ...   (see --help)
"""

import argparse
import json
import math
import pathlib
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import grammar
import tokenizer as nano_tokenizer
from model import Nano, export
from split import SEED, Split
from turns import sum_answer, sum_question

END, START, STOP = 0, 1, 2  # <|endoftext|>, <|im_start|>, <|im_end|>
CHUNK = 2048                # documents made at a time


def weights_of(ids, assistant, prompt_weight):
    """How much each token counts as a target: 1 in the assistant's turns and in plain text."""
    if START not in ids[:2]:
        return [1.0] * len(ids)
    out, inside = [], False
    for i, token in enumerate(ids):
        if token == START:
            inside = False
        out.append(1.0 if inside else prompt_weight)
        if i >= 2 and ids[i - 2] == START and ids[i - 1] == assistant:
            inside = True  # from the token after the line end on
        if token == STOP:
            inside = False
    return out


def batches(coder, split, args, index):
    """The batches of one chunk, in random order: (ids [b, t + 1], target weights [b, t])."""
    rng = random.Random(f"batches/{args.seed}/{index}")
    documents = grammar.chunk(args.seed, index, CHUNK, split)
    texts = [("<|endoftext|>" if "text" in d and rng.random() < 0.5 else "")
             + grammar.document_text(d) for d in documents]
    assistant = coder.token_to_id("assistant")
    rows = [e.ids for e in coder.encode_batch(texts)]
    rows = sorted((r for r in rows if len(r) <= nano_tokenizer.CONTEXT), key=len)
    out, at = [], 0
    while at < len(rows):
        n = 1
        while at + n < len(rows) and (n + 1) * len(rows[at + n]) <= args.batch_tokens:
            n += 1
        group = rows[at:at + n]
        width = len(group[-1])
        ids = np.full((n, width), END, dtype=np.int64)
        weight = np.zeros((n, width), dtype=np.float32)
        for i, row in enumerate(group):
            ids[i, :len(row)] = row
            weight[i, :len(row)] = weights_of(row, assistant, args.prompt_weight)
        out.append((torch.from_numpy(ids), torch.from_numpy(weight[:, 1:].copy())))
        at += n
    rng.shuffle(out)
    return out


def loss_of(model, ids, weight):
    logits = model.head(model(ids[:, :-1]))
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), ids[:, 1:].reshape(-1),
                           reduction="none")
    weight = weight.reshape(-1)
    return (loss * weight).sum() / weight.sum()


@torch.no_grad()
def held_out_sums(model, coder, split, device):
    """The share of held-out sums answered right, each asked once, by one forward pass."""
    rng = random.Random(1)
    right = 0
    for item in sorted(split.held_items):
        prompt = coder.encode(grammar.render(
            [{"role": "user", "content": sum_question(rng, item)}], prompt=True)).ids
        answer = coder.encode(sum_answer(item)).ids + [STOP]
        ids = torch.tensor([prompt + answer], device=device)
        best = model.head(model(ids))[0, len(prompt) - 1:-1].argmax(-1)
        right += best.tolist() == answer
    return right / len(split.held_items)


def rate(args, done):
    """Warm up, then a cosine down to a twentieth; done is the share of the tokens that is seen."""
    if done < 0.02:
        return args.lr * done / 0.02
    return args.lr * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def optimizer_of(model, args):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": args.decay},
                              {"params": others, "weight_decay": 0.0}],
                             lr=args.lr, betas=(0.9, 0.98), eps=1e-9, fused=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", default=str(here / "models" / "nano"), help="the model's folder")
    parser.add_argument("--work", default="nano-work", help="the checkpoint and the log")
    parser.add_argument("--tokens", type=float, default=16e6, help="how many to train on in all")
    parser.add_argument("--start", help="begin with this checkpoint's weights, not its schedule")
    parser.add_argument("--first-chunk", type=int, default=1000, help="where the corpus begins")
    parser.add_argument("--lr", type=float, default=2.5e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--prompt-weight", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--eager", action="store_true", help="do without torch.compile")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


class Run:
    """One training run: what a checkpoint holds, and the loop."""

    def __init__(self, args):
        self.args = args
        self.work = pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.out = pathlib.Path(args.out)
        if not (self.out / "tokenizer.json").exists():
            nano_tokenizer.make(self.out)
        self.coder = Tokenizer.from_file(str(self.out / "tokenizer.json"))
        self.split = Split(SEED)
        self.model = Nano().to(args.device)
        self.optimizer = optimizer_of(self.model, args)
        self.loss = loss_of if args.eager else torch.compile(loss_of, dynamic=True)
        self.chunk, self.step, self.tokens, self.seconds = args.first_chunk, 0, 0, 0.0
        self.cpu_seconds = 0.0
        self.log = open(self.work / "log.jsonl", "a", encoding="utf-8")
        saved = self.work / "checkpoint.pt"
        if saved.exists():
            state = torch.load(saved, map_location=args.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            (self.chunk, self.step, self.tokens, self.seconds,
             self.cpu_seconds) = state["at"]
        elif args.start:
            self.model.load_state_dict(torch.load(args.start, map_location=args.device,
                                                  weights_only=True)["model"])

    def save(self):
        part = self.work / "checkpoint.part"
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "at": (self.chunk, self.step, self.tokens, self.seconds,
                           self.cpu_seconds)}, part)
        part.replace(self.work / "checkpoint.pt")

    def report(self, losses):
        row = {"step": self.step, "chunk": self.chunk, "seconds": round(self.seconds),
               "cpu_seconds": round(self.cpu_seconds), "tokens": self.tokens,
               "loss": round(float(np.mean(losses)), 4),
               "held_out_sums": round(held_out_sums(self.model, self.coder, self.split,
                                                    self.args.device), 3)}
        print(json.dumps(row), flush=True)
        self.log.write(json.dumps(row) + "\n")
        self.log.flush()

    def train(self):
        args = self.args
        while self.tokens < args.tokens:
            began, cpu_began, losses = time.time(), time.process_time(), []
            for ids, weight in batches(self.coder, self.split, args, self.chunk):
                for group in self.optimizer.param_groups:
                    group["lr"] = rate(args, self.tokens / args.tokens)
                loss = self.loss(self.model, ids.to(args.device), weight.to(args.device))
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                losses.append(loss.item())
                self.step += 1
                self.tokens += ids.numel()
                if self.tokens >= args.tokens:
                    break
            self.seconds += time.time() - began
            self.cpu_seconds += time.process_time() - cpu_began
            self.chunk += 1
            self.report(losses)
            self.save()
        export(self.model, self.out)


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    run = Run(args)
    size = sum(p.numel() for p in run.model.parameters())
    print(f"{size} parameters on {args.device}", flush=True)
    run.train()


if __name__ == "__main__":
    main()
