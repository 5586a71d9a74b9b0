"""Random traces: the program against model.py, every line and every field.

    random_test.py PAGODA [FIRST_SEED N_SEEDS]
"""

import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from model import Model

MADE_UP = 10**9 - 1  # ids the program makes up lie above


def make_config(rng):
    c = {
        "block_size": rng.choice([1, 2, 3, 4, 4, 5, 8, 16]),
        "num_blocks": rng.randint(4, 40),
        "max_num_batched_tokens": rng.choice([1, 3, 8, 16, 33, 64, 200]),
        "max_num_seqs": rng.randint(1, 9),
        "max_model_len": rng.randint(20, 120),
        "scheduling_policy": rng.choice(["fcfs", "priority"]),
        "enable_prefix_caching": rng.random() < 0.8,
        "long_prefill_token_threshold": rng.choice([0, 0, 0, 1, 5, 12]),
        "watermark": rng.choice([0.0, 0.0, 0.01, 0.1, 0.3]),
        "reserve_full_prompt": rng.random() < 0.6,
        "eos_token_id": rng.choice([None, 2]),
    }
    if rng.random() < 0.2:
        c["enable_chunked_prefill"] = False
        c["max_num_batched_tokens"] = c["max_model_len"] + rng.randint(0, 50)
    kind = rng.random()
    if kind < 0.15:
        c["sliding_window"] = rng.randint(1, 40)
    elif kind < 0.4:
        groups = []
        for _ in range(rng.randint(1, 3)):
            window = {"kind": "window", "window": rng.randint(1, 40)}
            groups.append(rng.choice([{"kind": "full"}, window]))
        c["kv_groups"] = groups
        c["num_blocks"] *= len(groups)
    return c


def make_prompt(rng, longest):
    n = rng.randint(1, longest)
    kind = rng.random()
    if kind < 0.2:
        return [rng.randint(0, 2) for _ in range(n)]
    shared = {"seed": rng.choice([1, 2, 3, 5000]), "len": rng.randint(0, n - 1)}
    own = {"seed": rng.randint(4, 8), "len": n - shared["len"]}
    if kind < 0.4:
        return {"seed": rng.randint(1, 3), "len": n}
    return {"concat": [shared, own]}


def make_add(rng, name, config):
    longest = min(config["max_model_len"] + 2, rng.choice([10, 40, 120]))
    add = {"id": name, "prompt": make_prompt(rng, longest)}
    if rng.random() < 0.9:
        add["max_tokens"] = rng.randint(1, 40)
    if rng.random() < 0.3:
        add["min_tokens"] = rng.randint(0, add.get("max_tokens", 16))
    if rng.random() < 0.5:
        ids = [2, 3, 4, 9, 3000000000] if rng.random() < 0.5 else [9, 9, 9, 3]
        add["output"] = [rng.choice(ids) for _ in range(rng.randint(0, 20))]
    for key, value in (
        ("ignore_eos", True),
        ("stop_token_ids", rng.choice([[3], [2, 4], [3000000000]])),
        ("priority", rng.randint(-2, 3)),
        ("arrival", rng.randint(0, 5)),
        ("cache_salt", rng.choice(["x", "y"])),
        ("lora", rng.choice(["x", "y"])),
        ("prompt_logprobs", True),
    ):
        if rng.random() < 0.2:
            add[key] = value
    return add


def make_trace(rng, config):
    trace, at, names = [], 0, []
    for i in range(rng.randint(1, 40)):
        at += rng.choice([0, 0, 0, 1, 1, 2, 5, 30])
        kind = rng.random()
        if kind < 0.85 or not names:
            names.append(f"r{i}")
            trace.append({"at": at, "add": make_add(rng, names[-1], config)})
        elif kind < 0.95:
            trace.append({"at": at, "abort": rng.choice(names + ["nobody"])})
        else:
            trace.append(
                {"at": at, "reset_prefix_cache": {"preempt_running": rng.random() < 0.5}}
            )
    return trace


def run_program(program, config, trace, folder):
    paths = os.path.join(folder, "c.json"), os.path.join(folder, "t.jsonl")
    with open(paths[0], "w") as f:
        json.dump(config, f)
    with open(paths[1], "w") as f:
        f.writelines(json.dumps(e) + "\n" for e in trace)
    done = subprocess.run(
        [program, "simulate", "--config", paths[0], "--trace", paths[1]],
        capture_output=True,
        timeout=120,
    )
    return done.returncode, [json.loads(x) for x in done.stdout.splitlines()], done.stderr


def mask(line):
    """Ids that were made up are compared by their place only."""
    for f in line.get("finished", []) if "step" in line else []:
        f["output"] = [
            "new" if t < 0 or (t > MADE_UP and t != 3000000000) else t for t in f["output"]
        ]
    return line


def compare(program, seed, folder):
    rng = random.Random(seed)
    config = make_config(rng)
    trace = make_trace(rng, config)
    lines, summary = Model(config).run(trace)
    status, got, err = run_program(program, config, trace, folder)
    expected = [mask(x) for x in lines]
    if summary is not None:
        expected.append({"summary": summary})
    if status != (0 if summary is not None else 1):
        print(f"seed {seed}: exit status {status}: {err.decode()}")
        return False, 0, {}
    for a, b in zip(expected, [mask(x) for x in got]):
        if a != b:
            print(f"seed {seed}\nconfig {json.dumps(config)}\nexpected {a}\ngot      {b}")
            return False, 0, {}
    if len(expected) != len(got):
        print(f"seed {seed}: {len(got)} lines, expected {len(expected)}")
        return False, 0, {}
    return True, sum(len(x["scheduled"]) for x in lines), summary or {}


def main():
    first, n = (int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 3 else (1, 300)
    n_bad = rows = preemptions = hits = stuck = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + n):
            good, n_rows, summary = compare(sys.argv[1], seed, folder)
            n_bad += not good
            rows += n_rows
            preemptions += summary.get("preemptions", 0)
            hits += summary.get("prefix_cache", {}).get("hits", 0)
            stuck += good and not summary
    print(f"{n} traces, {rows} request-steps, {preemptions} preemptions, {hits} tokens hit, "
          f"{stuck} stuck, {n_bad} differ")
    sys.exit(1 if n_bad or not preemptions or not hits else 0)


main()
