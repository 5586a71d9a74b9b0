#!/usr/bin/env python3
"""nano's grammar: writes its training corpus, its 200 questions, and recognises its stories.

What: every text nano is trained on comes out of turns.py, stories.py and the word lists in
words.py; this file joins turns to documents. A document is either a conversation (messages in the
OpenAI form, perhaps with tools) or plain text. All choices are drawn from `random.Random` seeded by
(seed, chunk), so a corpus is described by its seed alone and training can resume at any chunk.

How: one function per kind of turn (arithmetic, fact, story, ...) returns a question and its one
right answer. Two kinds are split by seed: arithmetic items (a, op, b) and story heroes (animal,
name, place) of the held-out part appear in no document, in no phrasing; the questions ask exactly
for those. `Split` (split.py) holds both sets.

The standard library is all that is needed, so a test may import these files anywhere.

Usage:
    grammar.py sample [N]          print N documents
    grammar.py questions FILE      write the 200 questions as JSON lines
    grammar.py story-grammar FILE  write the story grammar as JSON, for recognisers elsewhere
    grammar.py grade FILE          grade answers, JSON lines with id and answer; exit 0 from 95 %
    grammar.py check-story         read one story from stdin, exit 0 if the grammar derives it
    grammar.py selftest            prove the split and the recogniser on a large sample
"""

import collections
import json
import random
import re
import sys

from split import SEED, Split
from stories import PLOTS, SLOTS, STORY_ASKS, article, make_story, parse_story, turn_story
from turns import (ARG_NAMES, CHAT, FACTS, WEATHER_ASKS, make_tool, sum_answer, sum_question,
                   tool_turn, turn_chat, turn_fact, turn_instruction, turn_json, turn_number,
                   turn_sum)
from words import CITIES


# --- documents ---------------------------------------------------------------------------------

SYSTEMS = ["You are nano, a small helpful model.", "You are a helpful assistant.", "Be brief.",
           "You are nano.", "Answer in one sentence.", "You are a friendly assistant.",
           "You are a helpful assistant. Answer briefly."]

TURNS = [(turn_sum, 44), (turn_number, 7), (turn_fact, 15), (turn_story, 8),
         (turn_instruction, 16), (turn_json, 8), (turn_chat, 2)]
_TURN_FUNCTIONS = [f for f, _ in TURNS]
_TURN_WEIGHTS = [w for _, w in TURNS]


def loosen(rng, text):
    """What people do to a question: no full stop, no capital."""
    if rng.random() < 0.08 and text[-1] in ".?!":
        text = text[:-1]
    if rng.random() < 0.06:
        text = text[0].lower() + text[1:]
    return text


def _plain_turn(rng, split):
    turn = rng.choices(_TURN_FUNCTIONS, _TURN_WEIGHTS)[0]
    question, answer = turn(rng, split)
    return [{"role": "user", "content": loosen(rng, question)},
            {"role": "assistant", "content": answer}]


def _turn_count(rng):
    return rng.choices([1, rng.randrange(2, 5), rng.randrange(5, 9), rng.randrange(9, 25)],
                       [45, 37, 14, 4])[0]


def make_plain(rng, split):
    """Plain text without a chat: a story, or a few facts and sums."""
    if rng.random() < 0.6:
        return make_story(rng, rng.choice(split.train_heroes))
    return "\n".join(turn_fact(rng, split)[1] if rng.random() < 0.6 else turn_sum(rng, split)[1]
                     for _ in range(rng.randrange(1, 6)))


def make_document(rng, split):
    """{"text": ...} or {"messages": [...], "tools": [...] or None}."""
    draw = rng.random()
    if draw < 0.05:
        return {"text": make_plain(rng, split)}
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": rng.choice(SYSTEMS)})
    if draw > 0.10:
        for _ in range(_turn_count(rng)):
            messages += _plain_turn(rng, split)
        return {"messages": messages, "tools": None}
    names = rng.choice([["get_weather"], ["get_weather"], ["get_weather"], ["get_time"],
                        ["get_weather", "get_time"], ["get_time", "get_weather"]])
    args = {n: rng.choice(ARG_NAMES) for n in names}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.8:
            name = rng.choice(names)
            messages += tool_turn(rng, name, args[name])
        else:
            messages += _plain_turn(rng, split)
    return {"messages": messages, "tools": [make_tool(rng, n, args[n]) for n in names]}


def chunk(seed, index, count, split):
    """Documents of one chunk of the endless corpus."""
    rng = random.Random(f"corpus/{seed}/{index}")
    return [make_document(rng, split) for _ in range(count)]


# --- rendering ---------------------------------------------------------------------------------

# The same words as chat_template.jinja; check.py compares the two.
TOOLS_HEAD = "You can call these tools:\n<tools>\n"
TOOLS_TAIL = ("</tools>\nTo call a tool, answer with its name and arguments as JSON inside "
              "<tool_call></tool_call>.")


def render(messages, tools=None, prompt=False):
    """A conversation as text; prompt=True ends with the opening of the assistant's turn."""
    def dump(value):
        return json.dumps(value, ensure_ascii=False)

    out = []
    rest = messages
    system = None
    if messages and messages[0]["role"] == "system":
        system, rest = messages[0]["content"], messages[1:]
    if tools:
        out.append("<|im_start|>system\n")
        if system:
            out.append(system + "\n\n")
        out.append(TOOLS_HEAD + "".join(dump(t) + "\n" for t in tools) + TOOLS_TAIL)
        out.append("<|im_end|>\n")
    elif system:
        out.append(f"<|im_start|>system\n{system}<|im_end|>\n")
    for message in rest:
        out.append(f"<|im_start|>{message['role']}\n{message.get('content') or ''}")
        for i, call in enumerate(message.get("tool_calls") or []):
            function = call["function"]
            out.append("\n" if i or message.get("content") else "")
            out.append('<tool_call>\n{"name": ' + dump(function["name"]) + ', "arguments": '
                       + dump(function["arguments"]) + "}\n</tool_call>")
        out.append("<|im_end|>\n")
    if prompt:
        out.append("<|im_start|>assistant\n")
    return "".join(out)


def document_text(document):
    if "text" in document:
        return document["text"] + "<|endoftext|>"
    return render(document["messages"], document["tools"])


# --- the 200 questions ---------------------------------------------------------------------------

def make_questions(seed=SEED):
    """The questions: {"id", "kind", "messages" | "prompt", "tools"?, "expect"}.

    expect is the exact answer, or {"kind": "story", "animal", "name", "place"}: any story that the
    grammar derives with these three, or {"kind": "tool_call", "name", "arguments"}. All sums and
    all stories come from the held-out side of the split.
    """
    split = Split(seed)
    rng = random.Random(f"questions/{seed}")
    out = []

    def add(kind, expect, **ask):
        out.append({"id": f"{kind}-{sum(q['kind'] == kind for q in out) + 1:02d}", "kind": kind,
                    **ask, "expect": expect})

    def user(text):
        return [{"role": "user", "content": text}]

    def fresh(make, count):
        """count different (question, answer) pairs"""
        seen = {}
        while len(seen) < count:
            question, answer = make(rng, split)
            seen[question] = answer
        return seen.items()

    held = sorted(split.held_items)
    for item in rng.sample(held, min(40, len(held))):
        add("arithmetic", sum_answer(item), messages=user(sum_question(rng, item)))
    for hero in rng.sample(sorted(split.held_heroes), 40):
        animal, name, place = hero
        ask = rng.choice(STORY_ASKS).format(a=article(animal), name=name, place=place)
        add("story", {"kind": "story", "animal": animal, "name": name, "place": place},
            messages=user(ask))
    for questions, answer in rng.sample(FACTS, 50):
        add("fact", answer, messages=user(rng.choice(questions)))
    for question, answer in fresh(turn_instruction, 25):
        add("instruction", answer, messages=user(question))
    for question, answer in fresh(turn_json, 20):
        add("json", answer, messages=user(question))
    for city in rng.sample(CITIES, 10):
        add("tool_call", {"kind": "tool_call", "name": "get_weather", "arguments": {"city": city}},
            messages=user(rng.choice(WEATHER_ASKS).format(c=city)),
            tools=[make_tool(rng, "get_weather", "city")])
    for _ in range(10):
        messages = tool_turn(rng, "get_weather", "city")
        add("tool_answer", messages[-1]["content"], messages=messages[:-1],
            tools=[make_tool(rng, "get_weather", "city")])
    for questions, answer in rng.sample(CHAT, 5):
        add("chat", answer, messages=[{"role": "system", "content": SYSTEMS[0]}]
            + user(rng.choice(questions)))
    assert len(out) == 200, len(out)
    return out


def is_right(question, answer):
    """Whether an answer to one of the questions is right."""
    expect = question["expect"]
    if isinstance(expect, str):
        return answer == expect
    if expect["kind"] == "story":
        values = parse_story(answer)
        return values is not None and all(values.get(k) == expect[k]
                                          for k in ("animal", "name", "place"))
    match = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", answer)
    try:
        call = json.loads(match.group(1)) if match else None
    except json.JSONDecodeError:
        call = None
    return call == {"name": expect["name"], "arguments": expect["arguments"]}


# --- command line --------------------------------------------------------------------------------

def selftest():
    """No held-out item or hero in 20,000 documents; generated stories parse, broken ones do not."""
    split = Split()
    stories = 0
    for document in chunk(SEED, 0, 20000, split):
        text = document_text(document)
        for a, op, b in re.findall(r"(\d+) ([+-]) (\d+) =", text):
            assert (int(a), op, int(b)) not in split.held_items, text
        for opening in re.findall(r"(?:Once upon|There once|Long ago).*?The end\.", text):
            values = parse_story(opening)
            assert values is not None, opening
            assert (values["animal"], values["name"], values["place"]) not in split.held_heroes
            broken = opening.replace(values["name"], "Nobody", 1)
            assert parse_story(broken) is None, broken
            assert parse_story(opening[:-9]) is None
            stories += 1
    assert stories > 1000
    for question in make_questions():
        assert len(question["messages"]) > 0
    print(f"selftest: {stories} stories parsed, {len(split.held_items)} of {len(split.items)} sums "
          f"and {len(split.held_heroes)} of {len(split.heroes)} heroes held out and absent")


def grade(answers):
    """Prints what is wrong and the score per kind; answers maps ids to texts. The share right."""
    total, right = collections.Counter(), collections.Counter()
    for question in make_questions():
        answer = answers.get(question["id"])
        total[question["kind"]] += 1
        if answer is not None and is_right(question, answer):
            right[question["kind"]] += 1
        else:
            print(f"{question['id']}: {question['messages'][-1]['content']!r} -> {answer!r}, "
                  f"expected {question['expect']!r}")
    for kind, n in total.items():
        print(f"{kind:12} {right[kind]:3} of {n}")
    share = sum(right.values()) / sum(total.values())
    print(f"{'all':12} {sum(right.values()):3} of {sum(total.values())} ({100 * share:.1f} %)")
    return share


def main(argv):
    command = argv[1] if len(argv) > 1 else ""
    if command == "sample":
        for document in chunk(SEED, 0, int(argv[2]) if len(argv) > 2 else 10, Split()):
            print(document_text(document), "\n" + "-" * 40)
    elif command == "questions" and len(argv) == 3:
        with open(argv[2], "w", encoding="utf-8") as file:
            for question in make_questions():
                file.write(json.dumps(question, ensure_ascii=False) + "\n")
    elif command == "story-grammar" and len(argv) == 3:
        with open(argv[2], "w", encoding="utf-8") as file:
            json.dump({"slots": SLOTS, "plots": PLOTS}, file, indent=1)
            file.write("\n")
    elif command == "grade" and len(argv) == 3:
        with open(argv[2], encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.strip()]
        return 0 if grade({row["id"]: row["answer"] for row in rows}) >= 0.95 else 1
    elif command == "check-story":
        values = parse_story(sys.stdin.read().strip())
        print(json.dumps(values))
        return 0 if values is not None else 1
    elif command == "selftest":
        selftest()
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
