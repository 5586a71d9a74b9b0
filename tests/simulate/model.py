"""The rules of `pagoda simulate`, read slowly: a second implementation that shares nothing with the
program and knows no speed. Content is named by the tokens themselves (no hashes), the free list is
a Python list, tables are lists. random_test.py compares the program with it.
"""

import math


class Pool:
    def __init__(self, n):
        self.free = list(range(1, n))
        self.ref = {b: 0 for b in range(1, n)}
        self.name = {}  # block -> content
        self.known = {}  # content -> blocks, the one registered first in front
        self.evicted = []

    def forget(self, b):
        if b in self.name:
            content = self.name.pop(b)
            self.known[content].remove(b)
            if not self.known[content]:
                del self.known[content]

    def register(self, b, content):
        self.name[b] = content
        self.known.setdefault(content, []).append(b)

    def find(self, content):
        return self.known.get(content, [0])[0]

    def take(self):
        b = self.free.pop(0)
        if b in self.name:
            self.forget(b)
            self.evicted.append(b)
        self.ref[b] = 1
        return b

    def give(self, table):
        gone = []
        for b in table:
            if b:
                self.ref[b] -= 1
                if self.ref[b] == 0:
                    gone.append(b)
        gone.reverse()
        self.free = [b for b in gone if b not in self.name] + self.free
        self.free += [b for b in gone if b in self.name]


class Request:
    def __init__(self, add, order):
        self.id = add["id"]
        self.tokens = expand(add["prompt"])
        self.n_prompt = len(self.tokens)
        self.max_tokens = add.get("max_tokens", 16)
        self.min_tokens = add.get("min_tokens", 0)
        self.ignore_eos = add.get("ignore_eos", False)
        self.stop = add.get("stop_token_ids", [])
        self.key = (add.get("priority", 0), add.get("arrival", order), order)
        self.keys = (add.get("cache_salt"), add.get("lora"))
        self.no_reads = add.get("prompt_logprobs", False)
        self.output = add.get("output", [])
        self.computed = 0
        self.tables = None
        self.n_known = 0  # blocks registered
        self.cached = None
        self.planned = None  # (start, tokens) in this step

    @property
    def outputs(self):
        return self.tokens[self.n_prompt :]


def expand(prompt):
    if isinstance(prompt, list):
        return list(prompt)
    if "concat" in prompt:
        return [t for piece in prompt["concat"] for t in expand(piece)]
    return [1000000 * (prompt["seed"] + 1) + k for k in range(prompt["len"])]


DEFAULTS = {
    "block_size": 16,
    "num_blocks": 1024,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 128,
    "max_model_len": 8192,
    "scheduling_policy": "fcfs",
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "long_prefill_token_threshold": 0,
    "watermark": 0.0,
    "reserve_full_prompt": True,
    "eos_token_id": None,
    "sliding_window": None,
    "kv_groups": None,
}


class Model:
    def __init__(self, config):
        self.c = {**DEFAULTS, **config}
        self.bs = self.c["block_size"]
        self.pool = Pool(self.c["num_blocks"])
        groups = self.c["kv_groups"]
        if groups is None:
            w = self.c["sliding_window"]
            groups = [{"kind": "window", "window": w}] if w else [{"kind": "full"}]
        self.windows = [g.get("window") for g in groups]
        self.running, self.waiting, self.order = [], [], 0
        self.preemptions = 0
        self.stats = {"requests": 0, "queries": 0, "hits": 0}
        self.ends = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.fresh = -1
        self.peak = self.sum_computed = self.sum_entries = 0

    # ---- sizes -------------------------------------------------------------------------------
    def blocks(self, n):
        return -(-n // self.bs)

    def cap(self, w):
        if w is None:
            return math.inf
        return (
            self.blocks(min(w - 1 + self.c["max_num_batched_tokens"], self.c["max_model_len"])) + 1
        )

    def most(self, n):
        return sum(min(self.blocks(n), self.cap(w)) for w in self.windows)

    def serves(self, w):
        """Cached blocks at its end that a hit needs in a window group."""
        return max(1, self.blocks(w - 1))

    # ---- content -----------------------------------------------------------------------------
    def content(self, r, i, g):
        return (g, r.keys, tuple(r.tokens[: (i + 1) * self.bs]))

    def valid(self, r, n, g):
        w = self.windows[g]
        first = 0 if w is None else max(0, n - self.serves(w))
        return all(self.pool.find(self.content(r, i, g)) for i in range(first, n))

    def lookup(self, r):
        """The longest hit every group can serve, tried from the longest down."""
        if not self.c["enable_prefix_caching"] or r.no_reads:
            return 0, [[] for _ in self.windows]
        n = (len(r.tokens) - 1) // self.bs
        while not all(self.valid(r, n, g) for g in range(len(self.windows))):
            n -= 1
        tables = []
        for g, w in enumerate(self.windows):
            first = 0 if w is None else max(0, n - self.serves(w))
            tables.append(
                [0 if i < first else self.pool.find(self.content(r, i, g)) for i in range(n)]
            )
        return n, tables

    def register(self, r, upto):
        if not self.c["enable_prefix_caching"]:
            return
        for i in range(r.n_known, upto // self.bs):
            for g in range(len(self.windows)):
                b = r.tables[g][i]
                if b:
                    self.pool.register(b, self.content(r, i, g))
        r.n_known = max(r.n_known, upto // self.bs)

    def extend(self, r, upto):
        for table in r.tables:
            while len(table) < self.blocks(upto):
                table.append(self.pool.take())
        self.register(r, upto)

    # ---- running -----------------------------------------------------------------------------
    def leave_windows(self, r):
        for g, w in enumerate(self.windows):
            if w is None:
                continue
            end = max(0, r.computed - w + 1) // self.bs
            out = [b for b in r.tables[g][:end]]
            self.pool.give(out)
            for i in range(end):
                r.tables[g][i] = 0

    def grow(self, r, n):
        self.leave_windows(r)
        need = sum(max(0, self.blocks(r.computed + n) - len(t)) for t in r.tables)
        if need > len(self.pool.free):
            return False
        self.extend(r, r.computed + n)
        return True

    def give(self, r):
        for table in r.tables or []:
            self.pool.give(table)
        r.tables, r.n_known = None, 0

    def preempt(self, r):
        self.running.remove(r)
        if r.planned:
            start, _ = r.planned
            for i in range(start // self.bs, r.n_known):
                for table in r.tables:
                    if table[i]:
                        self.pool.forget(table[i])
            self.rows.remove(r)
            r.planned = None
        self.give(r)
        r.computed = 0
        self.preempted.append(r.id)
        self.preemptions += 1
        if self.most(len(r.tokens)) > self.c["num_blocks"] - 1:
            self.end(r, "error")
            return
        self.enqueue(r, True)

    def enqueue(self, r, front):
        if self.c["scheduling_policy"] == "priority":
            self.waiting.append(r)
            self.waiting.sort(key=lambda q: q.key)
        else:
            self.waiting.insert(0 if front else len(self.waiting), r)

    def end(self, r, reason, stop=None):
        self.ends[reason] += 1
        self.finished.append(
            {"id": r.id, "reason": reason, "stop_reason": stop, "output": r.outputs}
        )

    def plan_running(self, budget):
        i = 0
        while i < len(self.running) and budget > 0:
            r = self.running[i]
            n = len(r.tokens) - r.computed
            if 0 < self.c["long_prefill_token_threshold"] < n:
                n = self.c["long_prefill_token_threshold"]
            n = min(n, budget)
            while not self.grow(r, n):
                victim = self.running[-1]
                if self.c["scheduling_policy"] == "priority":
                    victim = max(self.running, key=lambda q: q.key)
                if victim.planned:
                    budget += victim.planned[1]
                self.preempt(victim)
                if victim is r:
                    return budget
            r.planned = (r.computed, n)
            self.rows.append(r)
            budget -= n
            i = self.running.index(r) + 1
        return budget

    # ---- waiting -----------------------------------------------------------------------------
    def wanted(self, n_tokens, hit, tables, capped):
        total = 0
        for g, w in enumerate(self.windows):
            n = self.blocks(n_tokens)
            n = min(n, self.cap(w)) if capped else n
            total += max(0, n - hit)
            total += sum(1 for b in tables[g] if b and self.pool.ref[b] == 0)
        return total

    def plan_waiting(self, budget):
        while budget > 0 and self.waiting and len(self.running) < self.c["max_num_seqs"]:
            r = self.waiting[0]
            hit, tables = self.lookup(r)
            n = len(r.tokens) - hit * self.bs
            if 0 < self.c["long_prefill_token_threshold"] < n:
                n = self.c["long_prefill_token_threshold"]
            if not self.c["enable_chunked_prefill"] and n > budget:
                return
            n = min(n, budget)
            room = len(self.pool.free)
            if self.running:
                room -= math.floor(self.c["watermark"] * self.c["num_blocks"])
            if self.c["reserve_full_prompt"]:
                if self.wanted(len(r.tokens), hit, tables, True) > room:
                    return
            if self.wanted(hit * self.bs + n, hit, tables, False) > room:
                return
            self.waiting.pop(0)
            for table in tables:
                for b in table:
                    if b:
                        if self.pool.ref[b] == 0:
                            self.pool.free.remove(b)
                        self.pool.ref[b] += 1
            r.tables, r.n_known, r.computed = tables, hit, hit * self.bs
            self.extend(r, r.computed + n)
            self.running.append(r)
            self.rows.append(r)
            r.planned = (r.computed, n)
            budget -= n
            if r.cached is None:
                r.cached = hit * self.bs
                self.admitted.append(r.id)
                if self.c["enable_prefix_caching"] and not r.no_reads:
                    self.stats["requests"] += 1
                    self.stats["queries"] += r.n_prompt
                    self.stats["hits"] += r.cached
            else:
                self.resumed.append(r.id)

    # ---- a step ------------------------------------------------------------------------------
    def event(self, e):
        if "add" in e:
            r = Request(e["add"], self.order)
            self.order += 1
            too_long = r.n_prompt > self.c["max_model_len"] - 1
            if too_long or self.most(r.n_prompt) > self.c["num_blocks"] - 1:
                self.end(r, "error")
            else:
                self.enqueue(r, False)
        elif "abort" in e:
            for r in self.running + self.waiting:
                if r.id == e["abort"]:
                    (self.running if r in self.running else self.waiting).remove(r)
                    self.give(r)
                    self.end(r, "abort")
        else:
            if e["reset_prefix_cache"].get("preempt_running"):
                while self.running:
                    self.preempt(self.running[-1])
            done = not self.running
            if done:
                self.pool.name, self.pool.known = {}, {}
            self.reset = done

    def stop_check(self, r):
        token, n = r.tokens[-1], len(r.outputs)
        if n >= r.min_tokens:
            if token == self.c["eos_token_id"] and not r.ignore_eos:
                return "stop", None
            if token in r.stop:
                return "stop", token
        if len(r.tokens) >= self.c["max_model_len"] or n >= r.max_tokens:
            return "length", None
        return None, None

    def apply(self):
        for r in self.rows:
            if r.computed < len(r.tokens):
                continue
            k = len(r.outputs)
            if k < len(r.output):
                r.tokens.append(r.output[k])
            else:
                r.tokens.append(self.fresh)
                self.fresh -= 1
            reason, stop = self.stop_check(r)
            if reason:
                self.running.remove(r)
                self.give(r)
                self.end(r, reason, stop)

    def state(self, step):
        held = [b for b, n in self.pool.ref.items() if n]
        line = {"step": step}
        if self.reset is not None:
            line["reset_prefix_cache"] = self.reset
        rows = []
        for r in self.rows:
            start, n = r.planned
            decode = n == 1 and start == len(r.tokens) - 1 and len(r.outputs) > 0
            rows.append({"id": r.id, "tokens": n, "kind": "decode" if decode else "prefill"})
        tables = {r.id: [list(t) for t in r.tables] for r in self.running}
        line.update(
            scheduled=rows,
            admitted=self.admitted,
            resumed=self.resumed,
            preempted=self.preempted,
            copies=[],
            evicted=self.pool.evicted,
            cached_tokens={r.id: r.cached for r in self.running},
            running=[r.id for r in self.running],
            waiting=[r.id for r in self.waiting],
            free_blocks=len(self.pool.free),
            block_tables={k: t if len(t) > 1 else t[0] for k, t in tables.items()},
            ref_counts={str(b): self.pool.ref[b] for b in held},
        )
        self.peak = max(self.peak, len(held))
        for r in self.running:
            self.sum_computed += r.computed
            self.sum_entries += len(r.tables[0])
        return line

    def step(self, step, events):
        self.rows, self.admitted, self.resumed, self.preempted = [], [], [], []
        self.finished, self.reset, self.pool.evicted = [], None, []
        for e in events:
            self.event(e)
        before = len(self.preempted)
        budget = self.plan_running(self.c["max_num_batched_tokens"])
        if len(self.preempted) == before:
            self.plan_waiting(budget)
        for r in self.rows:
            r.computed += r.planned[1]
        line = self.state(step)
        moved = bool(self.rows or self.preempted)
        self.apply()
        for r in self.rows:
            r.planned = None
        line["finished"] = self.finished
        return line, moved

    def run(self, trace):
        lines, step, i, moved = [], 0, 0, False
        while i < len(trace) or self.running or self.waiting:
            if not moved or not (self.running or self.waiting):
                if i == len(trace):
                    return lines, None
                step = trace[i]["at"]
            events = []
            while i < len(trace) and trace[i]["at"] == step:
                events.append(trace[i])
                i += 1
            line, moved = self.step(step, events)
            if moved or events:
                lines.append(line)
            step += 1
        waste = 0
        if self.windows == [None] and self.sum_entries:
            waste = round(1 - self.sum_computed / (self.sum_entries * self.bs), 6)
        summary = {
            "steps": lines[-1]["step"] + 1 if lines else 0,
            "preemptions": self.preemptions,
            "prefix_cache": self.stats,
            "finished": self.ends,
            "peak_blocks": self.peak,
            "kv_waste": waste,
            "free_blocks": len(self.pool.free),
        }
        return lines, summary
