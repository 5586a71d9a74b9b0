"""The story grammar: writes stories, recognises them, and words the requests for one.

What: `make_story` derives a story about a hero (animal, name, place); `parse_story` gives back the
values of a story that the grammar derives, or None.

How: a story is a plot's steps in their order, one sentence each, with slots filled from closed word
lists. The recogniser walks the steps with one regular expression per sentence and tries the
alternatives in turn; a slot that has a value must keep it.
"""

import functools
import re

from words import (ADJECTIVES, ANIMALS, COLOURS, FOODS, FRIENDS, HOBBIES, NAMES, PLACES, SPOTS,
                   THINGS, TIMES)

# Every slot is drawn once per story and keeps its value. A plot is a list of steps, a step is a
# list of sentences of which one is taken. So a story is regular but for the agreement of slots.
SLOTS = {
    "name": NAMES, "animal": ANIMALS, "place": PLACES, "adj": ADJECTIVES, "hobby": HOBBIES,
    "friend": FRIENDS, "other": ANIMALS, "thing": THINGS, "colour": COLOURS, "spot": SPOTS,
    "food": FOODS, "time": TIMES,
}

_OPENING = [
    ["Once upon a time there was a {adj} {animal} named {name}.",
     "Long ago there was a {adj} {animal} named {name}.",
     "There once was a {adj} {animal} named {name}."],
    ["{name} lived {place}.", "The home of {name} was {place}."],
    ["Every {time} {name} liked to {hobby}.", "More than anything, {name} loved to {hobby}."],
]
_ENDING = [
    ["From that day on, {name} and {friend} were good friends.",
     "{name} and {friend} stayed friends for ever.",
     "Since then {name} and {friend} often {hobby} together."],
    ["The end."],
]
PLOTS = {
    "lost": _OPENING + [
        ["One day {name} met a sad {other} named {friend}."],
        ["\"I have lost my {colour} {thing},\" said {friend}.",
         "\"My {colour} {thing} is gone,\" cried {friend}."],
        ["\"Do not worry, I will help you,\" said {name}.",
         "\"Let us look for it together,\" said {name}."],
        ["They looked and looked, and at last they found the {thing} {spot}.",
         "After a long search {name} saw the {thing} {spot}."],
        ["{friend} was very happy and gave {name} some {food}.",
         "{friend} laughed and danced, and then they ate some {food}."],
    ] + _ENDING,
    "found": _OPENING + [
        ["One day {name} found a {colour} {thing} {spot}."],
        ["\"Whose {thing} can this be?\" asked {name}.",
         "\"What a beautiful {thing}!\" said {name}."],
        ["Then {name} met a little {other} named {friend}.",
         "Along came a little {other} named {friend}."],
        ["\"That is my {thing},\" said {friend}.",
         "\"Oh, you have found my {thing},\" said {friend}."],
        ["{name} smiled and gave the {thing} back.",
         "So {name} gave the {thing} to {friend}."],
        ["To say thank you, {friend} shared some {food}."],
    ] + _ENDING,
    "rain": _OPENING + [
        ["One day it began to rain and the wind was strong.",
         "One day a big storm came."],
        ["{name} hid {spot}."],
        ["A little {other} named {friend} was there too.",
         "There sat a little {other} named {friend}."],
        ["\"Are you cold?\" asked {friend}.",
         "\"Are you hungry?\" asked {friend}."],
        ["\"Yes, a little,\" said {name}."],
        ["So they shared some {food} and a {colour} {thing}.",
         "{friend} had some {food} and a warm {colour} blanket for two."],
        ["Soon the sun came out again."],
    ] + _ENDING,
}


def make_story(rng, hero):
    """A story about hero = (animal, name, place)."""
    values = dict(zip(("animal", "name", "place"), hero))
    for slot, words in SLOTS.items():
        if slot not in values:
            values[slot] = rng.choice(words)
    plot = PLOTS[rng.choice(sorted(PLOTS))]
    return " ".join(rng.choice(step).format(**values) for step in plot)


@functools.lru_cache(maxsize=None)
def _step_pattern(template, bound):
    """A compiled pattern for one sentence, given the (slot, value) pairs bound so far."""
    known = dict(bound)
    seen = set()

    def slot(match):
        name = match.group(1)
        if name in known:
            return re.escape(known[name])
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        words = sorted(SLOTS[name], key=len, reverse=True)
        return f"(?P<{name}>{'|'.join(map(re.escape, words))})"

    parts = re.split(r"{(\w+)}", template)
    text = "".join(re.escape(p) if i % 2 == 0 else slot(re.match(r"(\w+)", p))
                   for i, p in enumerate(parts))
    return re.compile(text)


def parse_story(text):
    """The slot values of a story that the grammar derives, or None."""
    def match(steps, at, values):
        if not steps:
            return values if at == len(text) else None
        if values:
            if not text.startswith(" ", at):
                return None
            at += 1
        for template in steps[0]:
            hit = _step_pattern(template, tuple(sorted(values.items()))).match(text, at)
            if not hit:
                continue
            found = match(steps[1:], hit.end(), {**values, **hit.groupdict()})
            if found is not None:
                return found
        return None

    for plot in PLOTS.values():
        found = match(plot, 0, {})
        if found is not None:
            return found
    return None


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


STORY_ASKS = [
    "Tell me a story about {a} named {name} {place}.",
    "Tell me a short story about {a} named {name} {place}.",
    "Write a story about {a} named {name} {place}.",
    "Can you tell me a story about {a} named {name} {place}?",
    "I want a story about {a} named {name} who lives {place}.",
    "Please write a short story about {name}, {a} {place}.",
]
STORY_ASKS_OPEN = [
    "Tell me a story.", "Tell me a story about {a}.", "Tell me a story about {a} named {name}.",
    "Write a short story about {a}.", "Can you tell me a story about {name}?",
    "Please tell me a story about {a} {place}.", "Tell me a short story.",
    "Write a story about {name}.", "I would like to hear a story.",
]


def turn_story(rng, split):
    hero = rng.choice(split.train_heroes)
    ask = rng.choice(STORY_ASKS if rng.random() < 0.75 else STORY_ASKS_OPEN)
    return ask.format(a=article(hero[0]), name=hero[1], place=hero[2]), make_story(rng, hero)
