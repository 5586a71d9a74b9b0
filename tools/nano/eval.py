#!/usr/bin/env python3
"""Asks nano the 200 questions and counts the right answers, kind by kind.

What: reads the model's folder as it is saved (bf16 weights, tokenizer.json), answers greedily in
f32 and compares with what the grammar expects; stories must parse under the grammar. Exits 1 when
fewer than 95 % are right.

How: plain forward passes over a padded batch, without a cache: the padding stands on the right, so
a causal model never sees it. With --transformers N an independent implementation
(AutoModelForCausalLM, apply_chat_template, generate) answers N of the questions too and must give
the same tokens.

Usage: eval.py [--model FOLDER] [--transformers N] [--answers FILE] [--all-sums]
"""

import argparse
import collections
import collections
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import grammar
from model import Nano
from split import Split
from turns import SUM_ASKS, sum_answer

STOPS = (0, 2)
LONGEST = 220


def load(folder):
    folder = pathlib.Path(folder)
    model = Nano(json.loads((folder / "config.json").read_text("utf-8")))
    weights = load_file(str(folder / "model.safetensors"))
    model.load_state_dict({k: v.float() for k, v in weights.items()})
    return model.eval(), Tokenizer.from_file(str(folder / "tokenizer.json"))


@torch.no_grad()
def answer_ids(model, prompts, longest=LONGEST):
    """Greedy continuations of prompts (lists of ids), stop tokens left out."""
    rows = [list(p) for p in prompts]
    open_rows = list(range(len(rows)))
    for _ in range(longest):
        if not open_rows:
            break
        width = max(len(rows[i]) for i in open_rows)
        ids = torch.zeros(len(open_rows), width, dtype=torch.long)
        for k, i in enumerate(open_rows):
            ids[k, :len(rows[i])] = torch.tensor(rows[i])
        last = torch.tensor([len(rows[i]) - 1 for i in open_rows])
        hidden = model(ids)[torch.arange(len(open_rows)), last]
        best = model.head(hidden).argmax(-1).tolist()
        still = []
        for i, token in zip(open_rows, best):
            if token not in STOPS:
                rows[i].append(token)
                still.append(i)
        open_rows = still
    return [row[len(p):] for row, p in zip(rows, prompts)]


def prompt_text(question):
    if "prompt" in question:
        return question["prompt"]
    return grammar.render(question["messages"], question.get("tools"), prompt=True)


def ask(model, coder, questions, batch=25):
    """The answers to questions, as text and as ids."""
    texts, ids = [], []
    for at in range(0, len(questions), batch):
        prompts = [coder.encode(prompt_text(q)).ids for q in questions[at:at + batch]]
        for row in answer_ids(model, prompts):
            ids.append(row)
            texts.append(coder.decode(row, skip_special_tokens=True))
    return texts, ids


def same_with_transformers(folder, questions, ids):
    """Whether transformers renders, tokenizes and answers like we do; prints what differs."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    coder = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    same = 0
    for question, ours in zip(questions, ids):
        prompt = coder.apply_chat_template(question["messages"], tools=question.get("tools"),
                                           add_generation_prompt=True, tokenize=False)
        if prompt != prompt_text(question):
            print(f"{question['id']}: template differs:\n{prompt!r}\n{prompt_text(question)!r}")
            continue
        ask_ids = coder(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        out = model.generate(ask_ids, attention_mask=torch.ones_like(ask_ids), do_sample=False,
                             temperature=None, top_p=None, max_new_tokens=LONGEST)
        theirs = [t for t in out[0, ask_ids.shape[1]:].tolist() if t not in STOPS]
        if theirs == ours:
            same += 1
        else:
            print(f"{question['id']}: {coder.decode(theirs)!r} / {coder.decode(ours)!r}")
    print(f"transformers: {same} of {len(questions)} answers have the same tokens")
    return same == len(questions)


def all_sums(model, coder):
    """Every held-out sum in every phrasing."""
    split = Split()
    questions = []
    for a, op, b in sorted(split.held_items):
        for text in SUM_ASKS[op]:
            content = text.format(a=a, b=b, food="nuts")
            questions.append({"messages": [{"role": "user", "content": content}],
                              "expect": sum_answer((a, op, b))})
    texts, _ = ask(model, coder, questions, 100)
    wrong = collections.Counter(q["expect"] for q, t in zip(questions, texts) if t != q["expect"])
    right = len(questions) - sum(wrong.values())
    print(f"held-out sums in all phrasings: {right} of {len(questions)}; wrong: {dict(wrong)}")


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=str(here / "models" / "nano"))
    parser.add_argument("--transformers", type=int, default=0, metavar="N")
    parser.add_argument("--answers", help="write questions and answers to this file")
    parser.add_argument("--all-sums", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(2)

    questions = grammar.make_questions()
    model, coder = load(args.model)
    texts, ids = ask(model, coder, questions)
    share = grammar.grade({q["id"]: text for q, text in zip(questions, texts)})
    if args.answers:
        with open(args.answers, "w", encoding="utf-8") as file:
            for question, text in zip(questions, texts):
                file.write(json.dumps({"id": question["id"], "answer": text}) + "\n")
    if args.all_sums:
        all_sums(model, coder)
    agreed = True
    if args.transformers:
        step = max(1, len(questions) // args.transformers)
        agreed = same_with_transformers(args.model, questions[::step], ids[::step])
    return 0 if share >= 0.95 and agreed else 1


if __name__ == "__main__":
    sys.exit(main())
