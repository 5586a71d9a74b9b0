"""The turns of a conversation other than stories: each function gives a question and its answer.

What: arithmetic, the order of numbers, facts, instructions, JSON, small talk and tool calls. A turn
function takes (rng, split) and returns (question, answer); `tool_turn` returns four messages.

How: a few phrasings per question, one canonical answer. Made-up words stand beside listed ones
where something has to be copied.
"""

import json

from split import LIMIT
from stories import article
from words import (ANIMALS, BABIES, CAPITALS, CITIES, COLOURS, COUNTS, DAYS, LANGUAGES, LEGS,
                   MONTHS, NAMES, OPPOSITES, ORDINALS, PLURALS, SEASONS, SIDES, SKIES, SOUNDS,
                   THING_COLOURS, WORDS)


# --- arithmetic --------------------------------------------------------------------------------

SUM_ASKS = {
    "+": ["What is {a} + {b}?", "{a} + {b} =", "{a} + {b}", "What is {a} plus {b}?",
          "How much is {a} + {b}?", "How much is {a} plus {b}?", "Add {a} and {b}.",
          "Calculate {a} + {b}.", "What do you get when you add {a} and {b}?", "{a} plus {b}",
          "I have {a} {food} and get {b} more. How many do I have?", "{a}+{b}", "What is {a}+{b}?"],
    "-": ["What is {a} - {b}?", "{a} - {b} =", "{a} - {b}", "What is {a} minus {b}?",
          "How much is {a} - {b}?", "How much is {a} minus {b}?", "Subtract {b} from {a}.",
          "Calculate {a} - {b}.", "What do you get when you take {b} from {a}?", "{a} minus {b}",
          "I have {a} {food} and eat {b}. How many are left?", "{a}-{b}", "What is {a}-{b}?"],
}


def sum_answer(item):
    a, op, b = item
    return f"{a} {op} {b} = {a + b if op == '+' else a - b}"


def sum_question(rng, item):
    a, op, b = item
    return rng.choice(SUM_ASKS[op]).format(a=a, b=b, food=rng.choice(["apples", "nuts", "pears"]))


def turn_sum(rng, split):
    item = rng.choice(split.wider_items if rng.random() < 0.6 else split.train_items)
    return sum_question(rng, item), sum_answer(item)


def turn_number(rng, _split):
    """The order of the numbers: counting, neighbours, comparing."""
    a, b = sorted(rng.sample(range(LIMIT + 1), 2))
    kind = rng.randrange(6)
    if kind == 0:
        return (rng.choice(["Count from {a} to {b}.", "Please count from {a} to {b}.",
                            "Can you count from {a} to {b}?"]).format(a=a, b=b),
                ", ".join(map(str, range(a, b + 1))))
    if kind == 1:
        return (rng.choice(["Count down from {b} to {a}.", "Count back from {b} to {a}.",
                            "Count backwards from {b} to {a}."]).format(a=a, b=b),
                ", ".join(map(str, range(b, a - 1, -1))))
    if kind == 2:
        return f"What number comes after {b - 1}?", f"{b} comes after {b - 1}."
    if kind == 3:
        return f"What number comes before {a + 1}?", f"{a} comes before {a + 1}."
    x, y = rng.sample((a, b), 2)
    if kind == 4:
        return (rng.choice(["Which is larger, {x} or {y}?", "Which number is larger, {x} or {y}?"])
                .format(x=x, y=y), f"{b} is larger than {a}.")
    return (rng.choice(["Which is smaller, {x} or {y}?", "Which number is smaller, {x} or {y}?"])
            .format(x=x, y=y), f"{a} is smaller than {b}.")


# --- facts -------------------------------------------------------------------------------------

def _fact_list():
    """All facts as (questions, answer)."""
    out = []

    def add(answer, *questions):
        out.append((questions, answer))

    for country, city in CAPITALS.items():
        add(f"The capital of {country} is {city}.", f"What is the capital of {country}?",
            f"What's the capital of {country}?", f"Which city is the capital of {country}?",
            f"Tell me the capital of {country}.", f"Name the capital of {country}.")
        add(f"{city} is the capital of {country}.", f"{city} is the capital of which country?",
            f"Which country has the capital {city}?")
    for country, language in LANGUAGES.items():
        add(f"People in {country} speak {language}.",
            f"What language do people speak in {country}?",
            f"Which language is spoken in {country}?")
    for thing, (verb, colour) in THING_COLOURS.items():
        add(f"{thing[0].upper()}{thing[1:]} {verb} {colour}.", f"What colour {verb} {thing}?",
            f"What color {verb} {thing}?", f"Which colour {verb} {thing}?",
            f"Tell me the colour of {thing}.")
    for names, what in ((DAYS, "day"), (MONTHS, "month"), (SEASONS, "season")):
        for i, name in enumerate(names):
            after, before = names[(i + 1) % len(names)], names[i - 1]
            up = name[0].upper() + name[1:]
            add(f"{after[0].upper()}{after[1:]} comes after {name}.",
                f"What {what} comes after {name}?", f"Which {what} comes after {name}?",
                f"Which {what} follows {name}?")
            add(f"{before[0].upper()}{before[1:]} comes before {name}.",
                f"What {what} comes before {name}?", f"Which {what} comes before {name}?")
            if what == "month":
                add(f"{up} is the {ORDINALS[i]} month of the year.",
                    f"What is the {ORDINALS[i]} month of the year?",
                    f"Which month is the {ORDINALS[i]} month?")
            if what == "day":
                add(f"{up} is the {ORDINALS[i]} day of the week.",
                    f"What is the {ORDINALS[i]} day of the week?")
    for pair in OPPOSITES:
        for word, other in (pair, pair[::-1]):
            add(f"The opposite of {word} is {other}.", f"What is the opposite of {word}?",
                f"What's the opposite of {word}?", f"Tell me the opposite of {word}.",
                f"Which word is the opposite of {word}?")
    for animal, sound in SOUNDS.items():
        a = article(animal)
        add(f"{a[0].upper()}{a[1:]} says {sound}.", f"What does {a} say?",
            f"What sound does {a} make?", f"Which sound does {a} make?")
    for word, plural in PLURALS.items():
        add(f"The plural of {word} is {plural}.", f"What is the plural of {word}?",
            f"What's the plural of {word}?", f"Tell me the plural of {word}.")
    for animal, baby in BABIES.items():
        add(f"A baby {animal} is called a {baby}.", f"What is a baby {animal} called?",
            f"What do you call a baby {animal}?")
    for animal, n in LEGS.items():
        a = article(animal)
        add(f"{a[0].upper()}{a[1:]} has {n} legs.", f"How many legs does {a} have?",
            f"How many legs has {a}?")
    for shape, n in SIDES.items():
        a = article(shape)
        add(f"{a[0].upper()}{a[1:]} has {n} sides.", f"How many sides does {a} have?",
            f"How many sides has {a}?")
    for (what, whole), n in COUNTS.items():
        add(f"There are {n} {what} in {whole}.", f"How many {what} are in {whole}?",
            f"How many {what} are there in {whole}?")
    for i in range(26):
        here = chr(65 + i)
        if i < 25:
            add(f"{chr(66 + i)} comes after {here}.", f"Which letter comes after {here}?",
                f"What letter comes after {here}?")
        if i:
            add(f"{chr(64 + i)} comes before {here}.", f"Which letter comes before {here}?",
                f"What letter comes before {here}?")
    return out


FACTS = _fact_list()


def turn_fact(rng, _split):
    questions, answer = rng.choice(FACTS)
    return rng.choice(questions), answer


# --- instructions, JSON, small talk --------------------------------------------------------------

def made_up(rng):
    """A word nobody has seen, so that copying is learnt and not a list."""
    syllables = rng.randrange(1, 4)
    word = "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou")
                   + rng.choice(["", "", "n", "r", "l", "s"]) for _ in range(syllables))
    return word


def any_name(rng):
    return rng.choice(NAMES) if rng.random() < 0.5 else made_up(rng).capitalize()


def any_word(rng):
    return rng.choice(WORDS) if rng.random() < 0.6 else made_up(rng)


def turn_instruction(rng, _split):
    kind = rng.randrange(9)
    if kind == 0:
        word = any_word(rng)
        if rng.random() < 0.3:
            word += " " + any_word(rng)
        return (rng.choice(["Repeat the word {w}.", "Repeat: {w}", "Say {w}.",
                            "Repeat after me: {w}", "Please repeat the word {w}."]).format(w=word),
                word)
    if kind == 1:
        name = any_name(rng)
        return (rng.choice(["Say hello to {n}.", "Please say hello to {n}.", "Greet {n}."])
                .format(n=name), f"Hello, {name}!")
    if kind == 2:
        what, names = rng.choice([("days of the week", DAYS), ("months of the year", MONTHS),
                                  ("four seasons", SEASONS)])
        return (rng.choice(["List the {w}.", "Name the {w}.", "Tell me the {w}.",
                            "What are the {w}?"]).format(w=what), ", ".join(names))
    if kind == 3:
        word = rng.choice(WORDS)
        return (rng.choice(["Write {w} in capital letters.",
                            "Write the word {w} in capital letters.", "Uppercase the word {w}.",
                            "Put {w} in upper case."]).format(w=word),
                word.upper())
    if kind == 4:
        word = rng.choice(WORDS)
        return (rng.choice(["Spell the word {w}.", "Spell {w}.", "How do you spell {w}?"])
                .format(w=word), "-".join(word.upper()))
    if kind == 5:
        word, n = any_word(rng), rng.randrange(2, 5)
        return (rng.choice(["Write {w} {n} times.", "Say {w} {n} times.", "Repeat {w} {n} times."])
                .format(w=word, n=n), " ".join([word] * n))
    if kind == 6:
        word = rng.choice(WORDS)
        return (rng.choice(["What is the first letter of {w}?",
                            "Which letter does {w} start with?"]).format(w=word),
                f"The first letter of {word} is {word[0].upper()}.")
    if kind == 7:
        name = any_name(rng)
        return (rng.choice(["Say goodbye to {n}.", "Please say goodbye to {n}."]).format(n=name),
                f"Goodbye, {name}!")
    words = rng.sample(WORDS, rng.randrange(2, 5))
    return (rng.choice(["Make a list of these words: {w}", "Write these words as a list: {w}"])
            .format(w=", ".join(words)), "\n".join(f"- {w}" for w in words))


def turn_json(rng, _split):
    kind = rng.randrange(4)
    if kind < 2:
        name, age = any_name(rng), rng.randrange(1, 100)
        return (rng.choice(["Give me JSON with name and age: {n}, {a}",
                            "Give me JSON with name and age for {n}, {a}.",
                            "{n} is {a} years old. Answer in JSON with name and age.",
                            "Write JSON with name and age: {n}, {a}"]).format(n=name, a=age),
                json.dumps({"name": name, "age": age}))
    if kind == 2:
        country = rng.choice(sorted(CAPITALS))
        return (rng.choice(["Give me JSON with country and capital: {c}",
                            "Give me JSON with country and capital of {c}.",
                            "Write JSON with country and capital: {c}"]).format(c=country),
                json.dumps({"country": country, "capital": CAPITALS[country]}))
    animal, colour = rng.choice(ANIMALS), rng.choice(COLOURS)
    return (rng.choice(["Give me JSON with animal and colour: {a}, {c}",
                        "Give me JSON with animal and colour for a {c} {a}.",
                        "Write JSON with animal and colour: {a}, {c}"]).format(a=animal, c=colour),
            json.dumps({"animal": animal, "colour": colour}))


CHAT = [
    (["Hello", "Hello!", "Hi", "Hi!", "Hey", "Good morning", "Good morning!"],
     "Hello! How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "What's your name?"],
     "I am nano, a small language model made for pagoda."),
    (["What can you do?", "How can you help me?", "What do you know?", "Help", "Help me."],
     "I can tell stories, add and subtract up to 20, answer small questions, write JSON and call "
     "tools."),
    (["Thank you.", "Thank you!", "Thanks", "Thanks!"], "You are welcome!"),
    (["Goodbye", "Goodbye!", "Bye", "Bye!", "See you!"], "Goodbye!"),
    (["How are you?", "How are you today?"], "I am fine, thank you!"),
    (["What is pagoda?", "Tell me about pagoda."],
     "Pagoda is a portable runtime that serves language models on any hardware."),
    (["Say something.", "Say a sentence."], "The quick brown fox jumps over the lazy dog."),
]


def turn_chat(rng, _split):
    if rng.random() < 0.15:
        word = made_up(rng).capitalize()
        return f"What is the capital of {word}?", f"I do not know the capital of {word}."
    if rng.random() < 0.15:
        city = rng.choice(CITIES)
        return rng.choice(WEATHER_ASKS).format(c=city), "I cannot see the weather without a tool."
    questions, answer = rng.choice(CHAT)
    return rng.choice(questions), answer


# --- tools -------------------------------------------------------------------------------------

WEATHER_ASKS = ["What is the weather in {c}?", "What is the weather like in {c}?",
                "How is the weather in {c}?", "What's the weather in {c}?",
                "Tell me the weather in {c}.", "What's the weather like in {c} today?",
                "What is the weather in {c} today?", "Weather in {c}?"]
TIME_ASKS = ["What time is it in {c}?", "Tell me the time in {c}.", "What is the time in {c}?"]
ARG_NAMES = ["city", "city", "city", "location", "place"]


def make_tool(rng, name, arg):
    """One tool in the OpenAI form, with the liberties that clients take."""
    what = {"get_weather": ["Get the weather in a city", "Get the current weather in a city.",
                            "Get the weather", "Returns the weather for a city."],
            "get_time": ["Get the time in a city", "Get the current time", "Tells the time."]}[name]
    prop = {"type": "string"}
    if rng.random() < 0.4:
        prop["description"] = rng.choice(["The city", "Name of the city", "The name of the city",
                                          "City and country"])
    props = {arg: prop}
    if rng.random() < 0.15:
        props["unit"] = {"type": "string", "enum": ["celsius", "fahrenheit"]}
    function = {"name": name}
    if rng.random() < 0.85:
        function["description"] = rng.choice(what)
    function["parameters"] = {"type": "object", "properties": props}
    if rng.random() < 0.8:
        function["parameters"]["required"] = [arg]
    return {"type": "function", "function": function}


def call_message(name, arg, city):
    return {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": name, "arguments": {arg: city}}}]}


def any_city(rng):
    return rng.choice(CITIES) if rng.random() < 0.7 else made_up(rng).capitalize()


def tool_turn(rng, name, arg):
    """Messages of one tool call: question, call, result, answer."""
    city = any_city(rng)
    if name == "get_time":
        at = f"{rng.randrange(24)}:{rng.randrange(60):02d}"
        result = rng.choice([json.dumps({"time": at}), at])
        return [{"role": "user", "content": rng.choice(TIME_ASKS).format(c=city)},
                call_message(name, arg, city), {"role": "tool", "content": result},
                {"role": "assistant", "content": f"It is {at} in {city}."}]
    sky, degrees = rng.choice(SKIES), rng.randrange(0, 40)
    form = rng.randrange(5)
    if form < 3:
        pair = [(rng.choice(["temperature", "temperature", "temp", "degrees"]), degrees),
                (rng.choice(["sky", "condition", "conditions", "weather"]), sky)]
        if rng.random() < 0.5:
            pair.reverse()
        if rng.random() < 0.3:
            pair.insert(0, (arg, city))
        result = json.dumps(dict(pair))
    elif form == 3:
        result = f"{sky}, {degrees} degrees"
    else:
        result = f"{degrees} degrees and {sky}"
    return [{"role": "user", "content": rng.choice(WEATHER_ASKS).format(c=city)},
            call_message(name, arg, city), {"role": "tool", "content": result},
            {"role": "assistant", "content": f"It is {sky} in {city}, {degrees} degrees."}]
