"""Cases of the scheduler and the KV cache, written by hand from their rules.

    cases_test.py PAGODA CASES_DIR

A file holds cases:

    = name of the case
    c block_size=4 num_blocks=11 ...              config
    + 0 a p=7*8,9*3 n=2 out=10,11 key=value ...   at step 0 add "a": 8 ids of seed 7, 3 of seed 9
    + 0 a p=[1,2,3]                               ... or these ids; n is max_tokens
    - 3 a                                         at step 3 abort "a"
    ! 4 | ! 4 preempt                             at step 4 reset the prefix cache
    0 rows=a:8p,b:1d tables=a:1.2/b:3 free=7 ...  what the line of step 0 must say
    end preemptions=1 ...                         what the summary must say

A line of a step checks the fields it names; every line of the output needs one (a lone number
checks only that it is there). Fields: rows (p = prefill, d = decode), adm, res, pre, run, wait
(ids), cached=a:0, tables=a:1.2 (groups split by ;), refs=1:2, evict, free, fin=a:length,
out=a:10.11, stop=a:5, reset. "-" is empty.
"""

import json
import os
import subprocess
import sys
import tempfile


def split(text, sep=","):
    return [] if text in ("-", "") else text.split(sep)


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def prompt_of(text):
    if text.startswith("["):
        return json.loads(text)
    pieces = []
    for piece in text.split(","):
        seed, n = piece.split("*")
        pieces.append({"seed": int(seed), "len": int(n)})
    return pieces[0] if len(pieces) == 1 else {"concat": pieces}


def add_of(words):
    add = {"id": words[0]}
    for word in words[1:]:
        key, text = word.split("=", 1)
        if key == "p":
            add["prompt"] = prompt_of(text)
        elif key == "n":
            add["max_tokens"] = int(text)
        elif key == "out":
            add["output"] = [int(x) for x in split(text)]
        else:
            add[key] = value_of(text)
    return add


class Case:
    def __init__(self, name):
        self.name, self.config, self.trace, self.lines, self.summary = name, {}, [], [], None

    def read(self, line):
        first, *words = line.split()
        if first == "c":
            self.config.update((w.split("=", 1)[0], value_of(w.split("=", 1)[1])) for w in words)
        elif first == "+":
            self.trace.append({"at": int(words[0]), "add": add_of(words[1:])})
        elif first == "-":
            self.trace.append({"at": int(words[0]), "abort": words[1]})
        elif first == "!":
            reset = {"preempt_running": "preempt" in words}
            self.trace.append({"at": int(words[0]), "reset_prefix_cache": reset})
        elif first == "end":
            self.summary = dict(w.split("=", 1) for w in words)
        else:
            self.lines.append((int(first), dict(w.split("=", 1) for w in words)))


def read_cases(path):
    cases = []
    with open(path) as f:
        for line in f:
            line = line.split("#")[0].strip()
            if line.startswith("="):
                cases.append(Case(line[1:].strip()))
            elif line:
                cases[-1].read(line)
    return cases


def table_of(text):
    groups = [[int(b) for b in split(g, ".")] for g in text.split(";")]
    return groups if len(groups) > 1 else groups[0]


def pairs(text, read, sep=","):
    return {a: read(b) for a, b in (x.split(":", 1) for x in split(text, sep))}


def rows_of(text):
    rows = []
    for row in split(text):
        name, what = row.split(":")
        kind = {"p": "prefill", "d": "decode"}[what[-1]]
        rows.append({"id": name, "tokens": int(what[:-1]), "kind": kind})
    return rows


def dots(text):
    return [int(x) for x in split(text, ".")]


# field -> (what the case says, what the line says)
FIELDS = {
    "rows": (rows_of, lambda x: x["scheduled"]),
    "adm": (split, lambda x: x["admitted"]),
    "res": (split, lambda x: x["resumed"]),
    "pre": (split, lambda x: x["preempted"]),
    "run": (split, lambda x: x["running"]),
    "wait": (split, lambda x: x["waiting"]),
    "cached": (lambda t: pairs(t, int), lambda x: x["cached_tokens"]),
    "tables": (lambda t: pairs(t, table_of, "/"), lambda x: x["block_tables"]),
    "refs": (lambda t: pairs(t, int), lambda x: x["ref_counts"]),
    "evict": (lambda t: [int(b) for b in split(t)], lambda x: x["evicted"]),
    "free": (int, lambda x: x["free_blocks"]),
    "fin": (split, lambda x: [f"{f['id']}:{f['reason']}" for f in x["finished"]]),
    "out": (lambda t: pairs(t, dots, "/"), lambda x: {f["id"]: f["output"] for f in x["finished"]}),
    "stop": (
        lambda t: pairs(t, value_of),
        lambda x: {f["id"]: f["stop_reason"] for f in x["finished"]},
    ),
    "reset": (value_of, lambda x: x["reset_prefix_cache"]),
}


def summary_value(summary, key):
    for part in (summary, summary["prefix_cache"], summary["finished"]):
        if key in part:
            return part[key]
    raise KeyError(key)


def check(case, got):
    """Sentences about what is wrong."""
    *lines, last = got
    steps = [n for n, _ in case.lines]
    if [x["step"] for x in lines] != steps:
        yield f"steps {[x['step'] for x in lines]}, expected {steps}"
        return
    for (step, fields), line in zip(case.lines, lines):
        for key, text in fields.items():
            read, pick = FIELDS[key]
            if pick(line) != read(text):
                yield f"step {step} {key}: {pick(line)}, expected {read(text)}"
    for key, text in (case.summary or {}).items():
        value = summary_value(last["summary"], key)
        if value != value_of(text):
            yield f"summary {key}: {value}, expected {text}"


def run(program, folder, config, trace):
    paths = os.path.join(folder, "c.json"), os.path.join(folder, "t.jsonl")
    with open(paths[0], "w") as f:
        f.write(config)
    with open(paths[1], "w") as f:
        f.write(trace)
    return subprocess.run(
        [program, "simulate", "--config", paths[0], "--trace", paths[1]],
        capture_output=True,
        timeout=60,
    )


def run_case(program, folder, case):
    trace = "".join(json.dumps(e) + "\n" for e in case.trace)
    done = run(program, folder, json.dumps(case.config), trace)
    if done.returncode != 0:
        return [f"exit status {done.returncode}: {done.stderr.decode()}"]
    return list(check(case, [json.loads(x) for x in done.stdout.splitlines()]))


def run_example(program, folder, path):
    """The documented example, byte for byte; its made-up ids are the program's own."""
    parts = open(path).read().split("----\n")
    done = run(program, folder, parts[0], parts[1])
    return [] if done.stdout.decode() == parts[2] else [done.stdout.decode() + done.stderr.decode()]


def main():
    program, folder = sys.argv[1:3]
    n = n_bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".example"):
                results = [(name, run_example(program, temporary, path))]
            else:
                results = [(c.name, run_case(program, temporary, c)) for c in read_cases(path)]
            for title, problems in results:
                n += 1
                n_bad += bool(problems)
                for problem in problems:
                    print(f"FAILED {name}: {title}: {problem}")
    print(f"{n} cases, {n_bad} failed")
    sys.exit(1 if n_bad or n == 0 else 0)


main()
