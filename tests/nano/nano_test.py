"""The 200 questions: the default model answers through the program, greedily, in one batch.

    nano_test.py PAGODA MODEL DEVICE [--once] [ARG...]

The questions (tests/nano/questions.jsonl) and what is right come from the grammar of tools/nano;
arithmetic and story prompts are held out of the training corpus. At least 95 % must be right and
every story must parse. A second batch with other sizes must give the same bytes; --once: left out,
for a device of which that is known otherwise.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "nano"))
import grammar  # noqa: E402

NEEDED = 0.95
LONGEST = 200


def lines_of(questions):
    """The questions as batch lines."""
    for q in questions:
        body = {"messages": q["messages"], "temperature": 0, "max_tokens": LONGEST}
        if "tools" in q:
            body["tools"] = q["tools"]
        if "messages" not in q:
            raise ValueError(f"question {q['id']} has no messages")
        yield {"custom_id": q["id"], "method": "POST", "url": "/v1/chat/completions", "body": body}


def answers_of(pagoda, model, device, questions, flags):
    """Runs one batch and returns {id: (text, finish_reason)}."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "in.jsonl")
        target = pathlib.Path(folder, "out.jsonl")
        source.write_text("".join(json.dumps(line) + "\n" for line in lines_of(questions)))
        command = [pagoda, "batch", model, "-i", source, "-o", target, "--device", device, *flags]
        subprocess.run(command, check=True, timeout=500)
        answers = {}
        for line in target.read_text().splitlines():
            answer = json.loads(line)
            response = answer["response"]
            if response["status_code"] != 200:
                raise ValueError(f"{answer['custom_id']}: {response['body']}")
            choice = response["body"]["choices"][0]
            answers[answer["custom_id"]] = (choice["message"]["content"], choice["finish_reason"])
        return answers


def main(argv):
    pagoda, model, device, flags = argv[1], argv[2], argv[3], argv[4:]
    once = flags[:1] == ["--once"]
    flags = flags[once:]
    text = (ROOT / "tests" / "nano" / "questions.jsonl").read_text()
    questions = [json.loads(line) for line in text.splitlines()]
    answers = answers_of(pagoda, model, device, questions, flags)
    if not once:
        again = answers_of(pagoda, model, device, questions, ["--max-num-seqs", "7", *flags])
    wrong = [q for q in questions if not grammar.is_right(q, answers[q["id"]][0])]
    unparsed = [
        q["id"]
        for q in questions
        if q["kind"] == "story" and grammar.parse_story(answers[q["id"]][0]) is None
    ]
    unended = [q["id"] for q in questions if answers[q["id"]][1] != "stop"]
    for q in wrong:
        print(f"wrong: {q['id']}: {answers[q['id']][0]!r}, expected {q['expect']!r}")
    share = 1 - len(wrong) / len(questions)
    print(f"{len(questions) - len(wrong)} of {len(questions)} right ({share:.1%})")
    checks = {
        f"there are 200 questions ({len(questions)})": len(questions) == 200,
        f"at least {NEEDED:.0%} are right": share >= NEEDED,
        f"every story parses (not: {unparsed})": not unparsed,
        f"every answer ends by itself (not: {unended})": not unended,
        "another batch size gives the same answers": once or again == answers,
    }
    for name, ok in checks.items():
        if not ok:
            print(f"FAILED: {name}")
    n_failed = sum(not ok for ok in checks.values())
    print(f"{len(checks) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
