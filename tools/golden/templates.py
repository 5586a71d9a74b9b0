#!/usr/bin/env python3
"""Makes tests/golden/templates: chat templates and what transformers renders from them.

cases.jsonl holds small templates, most about one construct; families.jsonl renders the templates
of tests/golden/templates/families, each in the style of a family of models, over many chats;
nano.jsonl, made only where the template of the model nano exists, renders that file. Rendering is
done by the environment that transformers compiles its chat templates with (Jinja2 sandbox,
trim_blocks, lstrip_blocks, own tojson). README.md describes the format.
"""

import argparse
import json
import os

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
OUT = os.path.join(ROOT, "tests", "golden", "templates")
FAMILIES = "tests/golden/templates/families"
NANO = os.path.join("models", "nano", "chat_template.jinja")

USER = {"role": "user", "content": "What colour is the sky?"}
SYSTEM = {"role": "system", "content": "You answer in few words."}
ANSWER = {"role": "assistant", "content": "Blue."}
AGAIN = {"role": "user", "content": '  And\nthe sea? <b>"é"</b> & 海 🙂 \\ '}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {
                "name": "get_weather",
                "arguments": {"city": "Oslo", "days": 2, "exact": True},
            },
        }
    ],
}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "c1", "content": '{"sky": "rain"}'}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'Tells the weather of a city, <now> & "here".',
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
CHATS = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, ANSWER, AGAIN],
    "called": [USER, CALL, RESULT],
    "empty": [],
}

CHATML = (
    "{% for message in messages %}\n"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}\n"
    "{{ '<|im_start|>assistant\\n' }}\n"
    "{% endif %}\n"
)
CHATML_TIGHT = (
    "{%- for message in messages -%}\n"
    "    {{- '<|im_start|>' ~ message.role ~ '\\n' -}}\n"
    "    {{- message.content | trim -}}\n"
    "    {{- '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
CHATML_DEFAULT = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{%"
    " endif %}"
    + CHATML
)
CHATML_TOOLS = (
    "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n    {%- if messages and messages[0].role"
    " == 'system' %}\n        {{- messages[0].content + '\\n\\n' }}\n    {%- endif %}\n    {{- '#"
    " Tools\\n<tools>' }}\n    {%- for tool in tools %}\n        {{- '\\n' }}\n        {{- tool |"
    " tojson }}\n    {%- endfor %}\n    {{- '\\n</tools><|im_end|>\\n' }}\n{%- elif messages and"
    " messages[0].role == 'system' %}\n    {{- '<|im_start|>system\\n' + messages[0].content +"
    " '<|im_end|>\\n' }}\n{%- endif %}\n{%- set ns = namespace(tool_run=false) %}\n{%- for message"
    " in messages %}\n    {%- if (message.role == 'user') or (message.role == 'system' and not"
    " loop.first)\n        or (message.role == 'assistant' and not message.tool_calls) %}\n       "
    " {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n   "
    " {%- elif message.role == 'assistant' %}\n        {{- '<|im_start|>' + message.role }}\n      "
    "  {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}\n        {%- for"
    " tool_call in message.tool_calls %}\n            {%- if tool_call.function is defined %}\n    "
    "            {%- set tool_call = tool_call.function %}\n            {%- endif %}\n           "
    ' {{- \'\\n<tool_call>\\n{"name": "\' + tool_call.name + \'", "arguments": \' }}\n           '
    " {{- tool_call.arguments | tojson }}\n            {{- '}\\n</tool_call>' }}\n        {%-"
    " endfor %}\n        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == 'tool' %}\n       "
    " {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}\n            {{-"
    " '<|im_start|>user' }}\n        {%- endif %}\n        {{- '\\n<tool_response>\\n' +"
    " message.content + '\\n</tool_response>' }}\n        {%- if loop.last or messages[loop.index0"
    " + 1].role != 'tool' %}\n            {{- '<|im_end|>\\n' }}\n        {%- endif %}\n    {%-"
    " endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n'"
    " }}\n{%- endif %}\n"
)
ALTERNATE = (
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0)"
    " %}{{ raise_exception('Roles must alternate: turn ' ~ loop.index ~ ' is ' ~ m['role']) }}{%"
    " endif %}{% if m['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role ="
    " m['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim +"
    " '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n'"
    " }}{% endif %}"
)
HEADERS = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content ="
    " '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] |"
    " trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{%"
    " endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{"
    " '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)

LIST = {
    "xs": [3, 1, 2],
    "words": ["b", "A", "c"],
    "d": {"k": 1, "a": [True, None, 1.5]},
    "s": " a b ",
}
CONSTRUCTS = [
    (
        (
            "{% for x in xs %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{"
            " loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }} {{ x }};{%"
            " endfor %}"
        ),
        LIST,
    ),
    (
        "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem is defined }};{% endfor %}",
        LIST,
    ),
    ("{% for x in [] %}x{% else %}none at all{% endfor %}", {}),
    ("{% for x in xs if x > 1 %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", LIST),
    (
        (
            "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{%"
            " endfor %}"
        ),
        LIST,
    ),
    (
        (
            "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}"
            "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}"
        ),
        LIST,
    ),
    ("{% if a %}A{% elif b %}B{% elif c is defined %}C{% else %}D{% endif %}", {"a": 0, "b": ""}),
    ("{% if a %}A{% elif b %}B{% else %}D{% endif %}", {"a": [], "b": {"x": 1}}),
    (
        "{% if a and not b or c %}yes{% else %}no{% endif %}{{ a and b }}{{ b or 'else' }}",
        {"a": 1, "b": 0, "c": None},
    ),
    ("{% set x = 1 %}{% for i in range(3) %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", {}),
    (
        (
            "{% set ns = namespace(n=0, seen='') %}{% for i in xs %}{% set ns.n = ns.n + i %}"
            "{% set ns.seen = ns.seen ~ i %}{% endfor %}{{ ns.n }} {{ ns.seen }}"
        ),
        LIST,
    ),
    (
        "{% set a, b = 1, 'two' %}{{ a }}{{ b }}{% set c %}  block {{ a }}\n{% endset %}[{{ c }}]",
        {},
    ),
    ("{% if true %}{% set x = 'kept' %}{% endif %}{{ x }}", {}),
    ("{{ d | tojson }}|{{ s | tojson }}|{{ xs | tojson(indent=2) }}|{{ none | tojson }}", LIST),
    (
        "{{ d | tojson(indent=4) }}",
        {
            "d": {
                "b": [],
                "a": {},
                "c": [1, {"x": "é<&>'\"\\\n\u2028\x01"}],
                "f": 1e20,
                "g": 0.1,
                "h": -0.0,
                "i": 10**15,
            }
        },
    ),
    (
        (
            "{{ d | tojson(ensure_ascii=true) }} {{ d | tojson(sort_keys=true, separators=(',',"
            " ':')) }}"
        ),
        {"d": {"b": "é🙂", "a": [1, 2]}},
    ),
    (
        (
            "[{{ s | trim }}][{{ s.strip() }}][{{ s.lstrip() }}][{{ s.rstrip() }}][{{"
            " 'xxaxx'.strip('x') }}]"
        ),
        LIST,
    ),
    (
        (
            "{{ 'aBc dE' | upper }} {{ 'aBc dE' | lower }} {{ 'aBc dE' | capitalize }} {{ 'aBc dE'"
            " | title }}"
        ),
        {},
    ),
    (
        (
            "{{ xs | length }} {{ s | count }} {{ xs | first }} {{ xs | last }} {{ xs | sum }} {{"
            " xs | max }} {{ xs | min }}"
        ),
        LIST,
    ),
    (
        (
            "{{ xs | join(', ') }} {{ words | join }} {{ [{'n': 1}, {'n': 2}] | join('-',"
            " attribute='n') }}"
        ),
        LIST,
    ),
    (
        (
            "{{ xs | sort }} {{ words | sort }} {{ words | sort(reverse=true) }} {{ xs | reverse |"
            " list }} {{ [1, 2, 1] | unique | list }}"
        ),
        LIST,
    ),
    (
        (
            "{{ missing | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} [{{"
            " missing }}]"
        ),
        {},
    ),
    (
        (
            "{{ 'a-b-c' | replace('-', '+') }} {{ 'a-b-c'.replace('-', '') }} {{ 'a-b-c'.split('-')"
            " }} {{ 'a b  c'.split() }}"
        ),
        {},
    ),
    (
        (
            "{{ '12' | int + 1 }} {{ 'x' | int }} {{ '1.5' | float }} {{ 3.7 | int }} {{ 5 | string"
            " ~ 6 }} {{ 2.5 | round }} {{ -3 | abs }}"
        ),
        {},
    ),
    (
        (
            "{{ words | map('upper') | list }} {{ [{'a': 1}, {'a': 2}] | map(attribute='a') | list"
            " }} {{ xs | select('odd') | list }} {{ xs | reject('equalto', 1) | list }}"
        ),
        LIST,
    ),
    (
        (
            "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list"
            " | tojson }}"
        ),
        {"messages": CHATS["turns"]},
    ),
    (
        (
            "{{ xs[0] }}{{ xs[-1] }}{{ xs[1:] }}{{ xs[:-1] }}{{ xs[::-1] }}{{ s[1:3] }}{{ s[::-1]"
            " }}{{ d['k'] }}{{ d.a[2] }}{{ d.get('zz', 'no') }}"
        ),
        LIST,
    ),
    (
        (
            "{{ 7 // 2 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 1 + 2 * 3 }} {{"
            " (1 + 2) * 3 }} {{ 'ab' * 2 }} {{ 1 ~ 2 }} {{ 4 / 2 }}"
        ),
        {},
    ),
    (
        (
            "{{ 1 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1] == [1] }} {{ 2 in xs }} {{ 9 not in"
            " xs }} {{ 'a' in s }} {{ 'k' in d }} {{ 1 < 2 < 3 }}"
        ),
        LIST,
    ),
    (
        (
            "{{ none }} {{ true }} {{ false }} {{ 1.0 }} {{ 1e16 }} {{ 1e-7 }} {{ 0.1 + 0.2 }} {{"
            " [1, 'a', None, 2.0, True] }} {{ {'a': 'b\\'c'} }} {{ (1, 2) }}"
        ),
        {},
    ),
    (
        (
            "{{ x is defined }} {{ d is mapping }} {{ s is string }} {{ xs is iterable }} {{ none"
            " is none }} {{ 1 is number }} {{ 3 is odd }} {{ xs is sequence }} {{ true is boolean"
            " }} {{ d is not string }} {{ 6 is divisibleby 3 }}"
        ),
        LIST,
    ),
    (
        "{{ 'yes' if a else 'no' }}{{ 'only' if b }}{{ ('x' if a else 'y') ~ '!' }}",
        {"a": True, "b": False},
    ),
    (
        (
            "{% macro greet(name, mark='!') %}Hello {{ name }}{{ mark }}{% endmacro %}{{"
            " greet('Ann') }} {{ greet('Bob', mark='?') }}"
        ),
        {},
    ),
    ("a {#- comment -#}  b {# another #}\nc\n{# line #}\nd\n", {}),
    (
        (
            "  {% if true %}\n    indented\n  {% endif %}\n\ttab {% if true %}x{% endif %}\n  {%+"
            " if true %}kept{% endif %}\nend\n\n"
        ),
        {},
    ),
    ("{{ 'a' -}}   \n  b\n  {{- 'c' }}\n{%- if true -%}  d  {%- endif %}\ne", {}),
    ("{% raw %}{{ not }} {% a %}{% endraw %}{{ '{{' }}", {}),
    ("{{ 'tab\\tnew\\nquote\\'' }}{{ \"dq\\\"\" }}{{ 'uni\\u00e9' }}{{ 'a' 'b' }}", {}),
    (
        (
            "{{ 'x'.startswith('x') }} {{ 'abc'.endswith(('b', 'c')) }} {{ 'abc'.find('c') }} {{"
            " 'aXb'.split('X')[-1] }} {{ 'a\nb'.splitlines() }} {{ 'é'.upper() }} {{"
            " '12'.isdigit() }}"
        ),
        {},
    ),
    (
        "{{ d | dictsort }} {{ d | items | list }} {{ d.keys() | list }} {{ d.values() | list }}",
        {"d": {"b": 1, "A": 2}},
    ),
    (
        (
            "{{ 'a\nb' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}|{{ '<&>' | e }}|{{ '%s-%03d' |"
            " format('x', 7) }}|{{ 'a b c' | wordcount }}"
        ),
        {},
    ),
    ("{% filter upper %}shout {{ s }}{% endfilter %}", LIST),
    ("{% for x in xs %}{{ x }}{% break %}{% else %}no turn ended{% endfor %}", LIST),
    (
        "{% for x in xs %}{% if x == 3 %}{% continue %}{% endif %}{{ x }}{% else %}!{% endfor %}",
        LIST,
    ),
    (
        (
            "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a"
            " }}|{{ c }}"
        ),
        {},
    ),
    ("{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}", {}),
    ("{{ missing | int }}", {}),
    ("{{ missing | float(1.5) }}", {}),
    ("{{ raise_exception('no ' ~ what) }}", {"what": "luck"}),
    ("{{ missing.attribute }}", {}),
    ("{{ d.missing }}|{{ d['missing'] }}|{{ d.missing is defined }}|{{ xs[9] }}|", LIST),
    ("{{ xs.append(4) }}", LIST),
    ("{% for x in xs %}{{ x }", LIST),
    (
        "{% if messages %}{% generation %}{{ messages[0].content }}{% endgeneration %}{% endif %}",
        {"messages": CHATS["one"]},
    ),
]

NINE = {**CALL, "content": None, "tool_calls": [{**CALL["tool_calls"][0], "id": "abcDEF123"}]}
BOTH = {
    **CALL,
    "content": "I look.",
    "tool_calls": [
        {"id": "call00001", **{k: v for k, v in CALL["tool_calls"][0].items() if k != "id"}},
        {
            "id": "call00002",
            "type": "function",
            "function": {"name": "sum", "arguments": {"xs": [1, -2.5, 1e20], "note": "é \u2028"}},
        },
    ],
}
PARTS = [{"type": "text", "text": " Look: "}, {"type": "image"}, {"type": "text", "text": "what?"}]
FAMILY_CHATS = {
    **CHATS,
    "thought": [
        USER,
        {"role": "assistant", "content": "<think>\nlight scatters\n</think>\n\nBlue."},
        AGAIN,
        {"role": "assistant", "content": "Wet.", "reasoning_content": "\nwater\n"},
    ],
    "last thought": [USER, {"role": "assistant", "content": "Blue.", "thinking": "I know."}],
    "nine": [
        SYSTEM,
        USER,
        NINE,
        {**RESULT, "tool_call_id": "abcDEF123"},
        {"role": "assistant", "content": " Rain. "},
        AGAIN,
    ],
    "two calls": [
        USER,
        BOTH,
        {**RESULT, "tool_call_id": "call00001"},
        {**RESULT, "tool_call_id": "call00002", "content": "7"},
        {"role": "assistant", "content": "Both done."},
    ],
    "in the midst": [USER, CALL, RESULT, RESULT],
    "object result": [USER, CALL, {**RESULT, "content": {"content": {"sky": ["rain", None]}}}],
    "parts": [{"role": "user", "content": PARTS}],
    "system parts": [{"role": "system", "content": PARTS[:1]}, {"role": "user", "content": PARTS}],
    "turn about": [ANSWER, USER],
    "twice": [USER, USER],
    "stranger": [{"role": "critic", "content": "No."}],
    "response said": [
        USER,
        {"role": "user", "content": "<tool_response>x</tool_response>"},
        ANSWER,
    ],
    "carried tools": [{**SYSTEM, "tools": '[{"name": "f"}]'}, USER],
    "listed tools": [{**SYSTEM, "tools": [{"name": "f", "n": 1}]}, USER],
}
FAMILY_TOOLS = TOOLS + [
    {
        "type": "function",
        "function": {
            "name": "sum",
            "description": "Adds up.",
            "parameters": {
                "type": "object",
                "properties": {
                    "xs": {"type": "array", "items": {"type": "number"}, "description": "terms"},
                    "how": {"type": "string", "enum": ["fast", "exact"], "default": "fast"},
                    "unit": {"type": ["string", "null"]},
                    "grid": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"row": {"type": "integer"}}},
                        "nullable": True,
                    },
                    "opts": {
                        "type": "object",
                        "additionalProperties": {"type": "boolean"},
                        "default": {"a": True, "b": None},
                    },
                    "any": {"oneOf": [{"type": "string", "description": "a name"}, {"type": "x"}]},
                    "Zed": {"description": " of the END "},
                },
                "required": ["xs"],
            },
            "return": {"type": "number", "description": "the sum"},
        },
    },
    {"type": "function", "function": {"name": "now", "description": "Tells the time."}},
]
FAMILY_EXTRAS = [
    {},
    {"enable_thinking": False, "reasoning_effort": "high", "tools_in_user_message": False},
    {"builtin_tools": ["code_interpreter", "get_weather"], "model_identity": "A lamp."},
]


def families(folder):
    """Every family's template over every chat; tools and a prompt to answer come and go."""
    out = []
    for name in sorted(os.listdir(folder)):
        for title, chat in FAMILY_CHATS.items():
            ways = [(None, True), (None, False), (FAMILY_TOOLS, True)]
            for tools, ask in ways if title in CHATS else [ways[len(out) % 3]]:
                at = len(out) // 3 % len(FAMILY_EXTRAS)
                variables = {
                    "messages": chat,
                    "tools": tools,
                    "add_generation_prompt": ask,
                    "bos_token": "<s>",
                    "eos_token": "</s>",
                    "date_string": "26 Jul 2024",
                    **FAMILY_EXTRAS[at],
                }
                out.append((name, variables))
    return out


def cases():
    out = []
    for template in (CHATML, CHATML_TIGHT):
        for chat in ("one", "system", "turns", "empty"):
            for ask in (False, True):
                out.append((template, {"messages": CHATS[chat], "add_generation_prompt": ask}))
    out.append((CHATML_DEFAULT, {"messages": CHATS["one"], "add_generation_prompt": True}))
    out.append((CHATML_DEFAULT, {"messages": CHATS["system"], "add_generation_prompt": True}))
    for chat in CHATS:
        for tools in (None, TOOLS):
            out.append(
                (
                    CHATML_TOOLS,
                    {"messages": CHATS[chat], "tools": tools, "add_generation_prompt": True},
                )
            )
    for template in (ALTERNATE, HEADERS):
        for chat in ([USER, ANSWER, AGAIN], CHATS["turns"]):
            out.append(
                (template, {"messages": chat, "add_generation_prompt": True, "bos_token": "<s>"})
            )
    return out + CONSTRUCTS


def render(template, variables):
    """{"out": text}, or {"error": ..., "kind": ...} when rendering fails."""
    try:
        return {"out": _compile_jinja_template(template).render(**variables)}
    except Exception as e:  # whatever class: the golden says which one it was
        return {"error": str(e), "kind": type(e).__name__}


def write_lines(path, rows):
    with open(path, "w") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=True) + "\n")
    print(
        f"{os.path.basename(path)}: {len(rows)} cases, {sum('error' in r for r in rows)} of them"
        " errors"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--out", default=OUT, help="folder to fill (default tests/golden/templates)"
    )
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    write_lines(
        os.path.join(args.out, "cases.jsonl"),
        [{"template": t, "vars": v, **render(t, v)} for t, v in cases()],
    )
    rows = []
    for name, variables in families(os.path.join(ROOT, FAMILIES)):
        path = f"{FAMILIES}/{name}"
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            rows.append({"template_file": path, "vars": variables, **render(f.read(), variables)})
    write_lines(os.path.join(args.out, "families.jsonl"), rows)
    if not os.path.exists(os.path.join(ROOT, NANO)):
        return
    with open(os.path.join(ROOT, NANO), encoding="utf-8") as f:
        template = f.read()
    rows = []
    for chat in CHATS.values():
        for tools in (None, TOOLS):
            for ask in (False, True):
                rows.append(
                    {
                        "messages": chat,
                        "tools": tools,
                        "add_generation_prompt": ask,
                        "bos_token": "<s>",
                        "eos_token": "</s>",
                    }
                )
    write_lines(
        os.path.join(args.out, "nano.jsonl"),
        [{"template_file": NANO, "vars": v, **render(template, v)} for v in rows],
    )


if __name__ == "__main__":
    main()
