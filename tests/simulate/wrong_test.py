"""Wrong traces, configs and flags: exit status 2, nothing on stdout, a sentence that names what.

    wrong_test.py PAGODA
"""

import json
import os
import subprocess
import sys
import tempfile

ADD = '{"at":0,"add":{"id":"a","prompt":[1]%s}}'


def add(text):
    return ADD % ("," + text)


# trace, words of the sentence
TRACES = [
    ("{", ["line 1"]),
    ("[]", ["line 1", "object"]),
    ('{"at":0}', ["line 1", "add, abort, reset_prefix_cache"]),
    ('{"add":{"id":"a","prompt":[1]}}', ["line 1", "at is missing"]),
    ('{"at":-1,"abort":"a"}', ["at is -1", "from 0"]),
    ('{"at":1.5,"abort":"a"}', ["at is 1.5"]),
    ('{"at":"0","abort":"a"}', ['at is "0"']),
    ('{"at":3,"abort":"a"}\n\n{"at":2,"abort":"a"}', ["line 3", "at is 2", "3 or more"]),
    ('{"at":0,"abort":"a","reset_prefix_cache":{}}', ["2 events"]),
    ('{"at":0,"abort":5}', ["abort is 5"]),
    ('{"at":0,"abort":["a"]}', ["abort", "text"]),
    ('{"at":0,"stop":"a"}', ['"stop"', "allowed"]),
    ('{"at":0,"reset_prefix_cache":true}', ["reset_prefix_cache is true"]),
    ('{"at":0,"reset_prefix_cache":{"all":true}}', ['"all"', "preempt_running"]),
    ('{"at":0,"reset_prefix_cache":{"preempt_running":1}}', ["preempt_running is 1", "true"]),
    ('{"at":0,"add":[]}', ["add is []"]),
    ('{"at":0,"add":{"prompt":[1]}}', ["no id"]),
    ('{"at":0,"add":{"id":7,"prompt":[1]}}', ["id is 7"]),
    ('{"at":0,"add":{"id":"a"}}', ["no prompt"]),
    ('{"at":0,"add":{"id":"a","prompt":[]}}', ["prompt is []", "empty"]),
    ('{"at":0,"add":{"id":"a","prompt":{"seed":1,"len":0}}}', ["prompt", "empty"]),
    ('{"at":0,"add":{"id":"a","prompt":{"concat":[]}}}', ["prompt", "empty"]),
    ('{"at":0,"add":{"id":"a","prompt":{"concat":[7]}}}', ["prompt is 7"]),
    ('{"at":0,"add":{"id":"a","prompt":{"concat":[[1]],"x":1}}}', ["concat"]),
    ('{"at":0,"add":{"id":"a","prompt":{"seed":1}}}', ["prompt.len is missing"]),
    ('{"at":0,"add":{"id":"a","prompt":{"len":1}}}', ["prompt.seed is missing"]),
    ('{"at":0,"add":{"id":"a","prompt":{"seed":-1,"len":1}}}', ["prompt.seed is -1"]),
    ('{"at":0,"add":{"id":"a","prompt":{"seed":1,"len":1,"x":0}}}', ['"x"']),
    ('{"at":0,"add":{"id":"a","prompt":"text"}}', ["prompt"]),
    ('{"at":0,"add":{"id":"a","prompt":[1,-2]}}', ["prompt is -2", "from 0"]),
    (add('"max_tokens":0'), ["max_tokens is 0", "from 1"]),
    (add('"max_tokens":null'), ["max_tokens is null"]),
    (add('"min_tokens":-1'), ["min_tokens is -1"]),
    (add('"min_tokens":17'), ["min_tokens is 17", "max_tokens (16)"]),
    (add('"min_tokens":3,"max_tokens":2'), ["min_tokens is 3", "max_tokens (2)"]),
    (add('"ignore_eos":1'), ["ignore_eos is 1"]),
    (add('"stop_token_ids":5'), ["stop_token_ids is 5"]),
    (add('"stop_token_ids":["x"]'), ["stop_token_ids"]),
    (add('"priority":1.5'), ["priority is 1.5"]),
    (add('"arrival":"x"'), ["arrival"]),
    (add('"cache_salt":7'), ["cache_salt is 7"]),
    (add('"lora":[]'), ["lora is []"]),
    (add('"prompt_logprobs":5'), ["prompt_logprobs is 5"]),
    (add('"output":[1.5]'), ["output is 1.5"]),
    (add('"n":2'), ['"n"', "allowed", "max_tokens"]),
    (add('"steps":[]'), ['"steps"']),
    (add('"max_token":2'), ['"max_token"']),
    (ADD % "" + "\n" + ADD % "", ["line 2", '"a"', "second time"]),
]

CONFIGS = [
    ("[]", ["object"]),
    ("{", ["c.json"]),
    ('{"block_sizes":16}', ['"block_sizes"', "block_size"]),
    ('{"block-size":16}', ['"block-size"']),
    ('{"block_size":0}', ["block_size is 0", "from 1"]),
    ('{"block_size":"16"}', ['block_size is "16"']),
    ('{"num_blocks":1}', ["num_blocks is 1", "from 2"]),
    ('{"num_blocks":2.5}', ["num_blocks is 2.5"]),
    ('{"max_num_batched_tokens":0}', ["max_num_batched_tokens is 0"]),
    ('{"max_num_seqs":0}', ["max_num_seqs is 0"]),
    ('{"max_model_len":null}', ["max_model_len is null"]),
    ('{"scheduling_policy":"lifo"}', ['scheduling_policy is "lifo"', "fcfs", "priority"]),
    ('{"scheduling_policy":1}', ["scheduling_policy is 1"]),
    ('{"enable_prefix_caching":1}', ["enable_prefix_caching is 1", "true"]),
    ('{"watermark":1.5}', ["watermark is 1.5", "0 to 1"]),
    ('{"watermark":-0.1}', ["watermark is -0.1"]),
    ('{"eos_token_id":-1}', ["eos_token_id is -1", "null"]),
    ('{"sliding_window":0}', ["sliding_window is 0"]),
    ('{"kv_groups":[]}', ["kv_groups is []"]),
    ('{"kv_groups":{}}', ["kv_groups is {}"]),
    ('{"kv_groups":[{"kind":"half"}]}', ["group 0", "full", "window"]),
    ('{"kv_groups":[{"kind":"window"}]}', ["group 0"]),
    ('{"kv_groups":[{"kind":"window","window":0}]}', ["group 0"]),
    ('{"kv_groups":[{"kind":"full"},{"kind":"full","window":4}]}', ["group 1"]),
    ('{"kv_groups":[{"kind":"full","block_size":8}]}', ['"block_size"']),
    ('{"kv_groups":[{"kind":"full"}],"sliding_window":4}', ["sliding_window", "kv_groups"]),
    ('{"enable_chunked_prefill":false,"max_model_len":4096}',
     ["max_num_batched_tokens is 2048", "4096"]),
    ('{"num_speculative_tokens":2}', ["num_speculative_tokens"]),
    ('{"preemption_mode":"swap"}', ["preemption_mode"]),
    ('{"num_host_blocks":2}', ["num_host_blocks"]),
    ('{"async_scheduling":true}', ["async_scheduling"]),
    ('{"cost":{}}', ["cost"]),
]

FLAGS = [
    ([], ["--trace"]),
    (["--trace", "/no/such/file"], ["/no/such/file"]),
    (["--trace", "T", "--config", "/no/such/file"], ["/no/such/file"]),
    (["--trace", "T", "--tables", "some"], ["tables", "some", "none, changed, all"]),
    (["--trace", "T", "--block-size", "0"], ["--block-size"]),
    (["--trace", "T", "--enable-prefix-caching", "yes"], ["--enable-prefix-caching", "true"]),
    (["--trace", "T", "--cost", "1"], ["--cost"]),
    (["--trace", "T", "extra"], ["extra"]),
]


class Checker:
    def __init__(self, program, folder):
        self.program, self.folder, self.n, self.n_bad = program, folder, 0, 0

    def path(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def run(self, args, env=None):
        full = {**os.environ, **(env or {})}
        done = subprocess.run([self.program, "simulate", *args], capture_output=True, env=full)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def refuse(self, args, words):
        status, out, err = self.run(args)
        self.expect(status == 2 and out == "" and all(w in err for w in words), args, words, err)

    def expect(self, good, *what):
        self.n += 1
        if not good:
            self.n_bad += 1
            print("FAILED", *what)


def check_sources(c, trace):
    """Default < config < environment < flag."""
    config = c.path("c.json", '{"num_blocks":10}')

    def free(args, env=None):
        _, out, _ = c.run(["--trace", trace, "--summary-only", *args], env)
        return json.loads(out)["summary"]["free_blocks"]

    c.expect(free([]) == 1023, "default")
    c.expect(free(["--config", config]) == 9, "config")
    env = {"PAGODA_NUM_BLOCKS": "20"}
    c.expect(free(["--config", config], env) == 19, "environment")
    c.expect(free(["--config", config, "--num-blocks", "30"], env) == 29, "flag")


def check_tables(c):
    trace = c.path("t.jsonl", ADD % ',"max_tokens":3' + "\n" + '{"at":1,"abort":"x"}\n')
    lines = {}
    for which in ("none", "changed", "all"):
        _, out, _ = c.run(["--trace", trace, "--block-size", "2", "--tables", which])
        lines[which] = [json.loads(x) for x in out.splitlines()]
    c.expect(all("block_tables" not in x for x in lines["none"]), "none")
    tables = [x["block_tables"] for x in lines["changed"][:-1]]
    counts = [x["ref_counts"] for x in lines["changed"][:-1]]
    c.expect(tables == [{"a": [1]}, {}, {"a": [1, 2]}], "changed", tables)
    c.expect(counts == [{"1": 1}, {}, {"2": 1}], "changed", counts)
    c.expect([x["block_tables"] for x in lines["all"][:-1]] == [{"a": [1]}] * 2 + [{"a": [1, 2]}])
    c.expect(lines["none"][-1] == lines["all"][-1], "summaries differ")


def main():
    with tempfile.TemporaryDirectory() as folder:
        c = Checker(sys.argv[1], folder)
        for text, words in TRACES:
            c.refuse(["--trace", c.path("t.jsonl", text + "\n")], ["t.jsonl line", *words])
        good = c.path("good.jsonl", ADD % "" + "\n")
        for text, words in CONFIGS:
            c.refuse(["--trace", good, "--config", c.path("c.json", text)], words)
        for args, words in FLAGS:
            c.refuse([good if a == "T" else a for a in args], words)
        check_sources(c, good)
        check_tables(c)
        print(f"{c.n} checks, {c.n_bad} failed")
        sys.exit(1 if c.n_bad else 0)


main()
