#!/usr/bin/env python3
"""The conformance tool from outside: options, refusals, exit status, files.

    tool_test.py TOOL GOOD_PLUGIN BROKEN_PLUGIN
"""
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

TOOL, GOOD, BROKEN = (str(Path(name).resolve()) for name in sys.argv[1:4])
FEW = ["--only", "loads.manifest", "--only", "ops.add", "--cases", "3"]


def run(*args):
    return subprocess.run([TOOL, *args], capture_output=True, text=True, timeout=120)


def check(condition, what, done=None):
    if not condition:
        print(f"FAILED {what}")
        if done is not None:
            print(done.stdout, done.stderr)
        sys.exit(1)


def test_wrong_use():
    for args, words in (
            ((), "missing"), (("/nonexistent.so",), "no such file"),
            ((GOOD, "--level", "9"), "--level"), ((GOOD, "--only", "x"), "--list"),
            ((GOOD, "--soak", "soon"), "--soak"), ((GOOD, "--frob", "1"), "--frob"),
            ((GOOD, "--floors", "60,50"), "--floors"), ((GOOD, "--floors", "60,50,x"), "--floors"),
            ((GOOD, GOOD), "one plugin"), ((GOOD, "--cases"), "--cases")):
        done = run(*args)
        check(done.returncode == 2 and words in done.stderr, f"{args} is not refused", done)


def test_help_and_list():
    done = run("--help")
    check(done.returncode == 0 and "--sheet" in done.stdout, "--help", done)
    done = run("--list", "--level", "1")
    names = [line.split()[1] for line in done.stdout.splitlines()]
    check("queue.pitch" in names and "ops.gemm" not in names, "--list by level", done)
    check(len(names) == len(set(names)), "names are not unique", done)


def test_files(folder):
    paths = [folder / name for name in ("r.json", "r.xml", "r.md")]
    done = run(GOOD, *FEW, "--json", paths[0], "--junit", paths[1], "--sheet", paths[2])
    check(done.returncode == 0, "a good plugin", done)
    check("\033" not in done.stdout, "colours without a terminal", done)
    told = json.loads(paths[0].read_text())
    check([c["result"] for c in told["checks"]] == ["passed", "passed"], "checks in JSON", done)
    check(told["operations"][0]["op"] == "add" and told["operations"][0]["cases"] > 0,
          "operations in JSON", done)
    suite = xml.etree.ElementTree.parse(paths[1]).getroot()
    check(suite.get("tests") == "2" and suite.get("failures") == "0", "JUnit", done)
    check("| add |" in paths[2].read_text(), "data sheet", done)
    check(run(GOOD, *FEW, "--json", "/nonexistent/r.json").returncode == 1, "a file not written")


def test_failure(folder):
    path = folder / "broken.xml"
    done = run(BROKEN, "--level", "0", "--junit", path)
    # a sanitizer adds constructors of its own, so that the loader refuses this plugin by itself
    words = "INCOMPATIBLE" if "built with a sanitizer" in done.stdout else "static constructor"
    check(done.returncode == 1 and words in done.stdout, "a broken plugin", done)
    suite = xml.etree.ElementTree.parse(path).getroot()
    check(int(suite.get("failures")) >= 1, "failures in JUnit", done)
    check("no level reached" in done.stdout, "a level in spite of failures", done)


MATRIX = """
devices:
  - {device: "good:0", plugin: %s, kind: double, level: 0}
  - {device: "acme:0"}
models: [qwen3-window]
checks: [level, tokens, nmse, speed]
tokens: 8
repeats: 3
"""


def test_matrix_files(folder):
    path = folder / "m.yaml"
    good = '"good:0"'
    for old, new, *words in (
            ("qwen3-window", "nowhere", "'nowhere'", "config.json", "llama-llama3"),
            ("[qwen3-window]", "[7]", "model", "as text"),
            ("models:", "model:", "unknown key 'model'", "models, checks"),
            ("kind: double", "kind: toy", "'toy'", "real, double, null"),
            ("kind: double", "kind: 3", "kind", "as text"),
            ("speed]", "sped]", "'sped'", "level, tokens, nmse, speed"),
            ("speed]", "nmse]", "'nmse'", "twice"),
            ("tokens: 8", "tokens: 0", "tokens '0'", "from 1 to 64"),
            ("tokens: 8", "tokens: eight", "tokens 'eight'", "from 1 to 64"),
            ("repeats: 3", "repeats: 51", "repeats '51'", "from 1 to 50"),
            ("level: 0}", "level: 5}", "level '5'", "from 0 to 4"),
            ("level: 0}", "levl: 0}", "'levl'", "device, plugin, kind, level"),
            (good, '"nothing(good:0)"', "'nothing(good:0)'", "layers are not for a matrix"),
            (good, '"check(good:0)"', "'check(good:0)'", "name the device alone"),
            (good, '"good:0{late=1}"', "'good:0{late=1}'", "has no options"),
            (good, '"good:x"', "good:x")):
        path.write_text((MATRIX % GOOD).replace(old, new))
        done = run("--matrix", path)
        check(done.returncode == 2 and all(word in done.stderr for word in words + [str(path)]),
              f"{new} is not refused", done)
        check("passed" not in done.stdout, f"{new} is run", done)
    check(run("--matrix", folder / "none.yaml").returncode == 2, "a matrix that is not there")
    done = run("--against", path)
    check(done.returncode == 2 and "--matrix" in done.stderr, "--against alone", done)


def test_matrix_of_others(folder):
    path = folder / "m.yaml"
    path.write_text("""
devices: [{device: "acme:0"}, {device: "acme:1", plugin: of/another/machine.so}]
models: [qwen3-window]
checks: [tokens]
""")
    done = run("--matrix", path)
    check(done.returncode == 0 and "verdict: nothing was run" in done.stdout and
          "lib/pagoda/libpgd-acme.so" in done.stdout and
          str(folder / "of/another/machine.so") in done.stdout, "nothing to run", done)


def test_matrix(folder):
    path, report, saved = (folder / name for name in ("m.yaml", "report.json", "saved.json"))
    path.write_text(MATRIX % GOOD)
    done = run("--matrix", path, "--json", report, "--loops", "20")
    check(done.returncode == 0 and "its plugin is not here" in done.stdout, "a matrix", done)
    told = json.loads(report.read_text())["matrix"]
    check(sorted({c["result"] for c in told}) == ["passed", "skipped"] and len(told) == 8,
          "the report of a matrix", done)
    for key, value, words in (("tokens", "0" * 16, "OTHER TOKENS"), ("nmse", 0.0, None),
                              ("tokens_per_s", [1e9, 1e9, 1e9], "SLOWER"),
                              ("tokens_per_s", [1.0, 1.0, 1.0], None)):
        # slow then, unless that is the case: the machine may be busy now
        then = {"tokens_per_s": [1.0, 1.0, 1.0], key: value}
        changed = [{**c, **then} if c["device"] == "good:0" else c for c in told]
        saved.write_text(json.dumps({"schema": 1, "matrix": changed}))
        done = run("--matrix", path, "--against", saved, "--loops", "20")
        check(done.returncode == (1 if words else 0) and (words or "as before") in done.stdout,
              f"against another {key}", done)
    saved.write_text(json.dumps({"schema": 1, "matrix": told + [
        {**told[0], "device": "good:1", "result": "passed"},
        {**told[0], "device": "good:2", "result": "skipped"}]}))
    path.write_text((MATRIX % GOOD).replace("speed]", "level]").replace("[level, ", "["))
    done = run("--matrix", path, "--against", saved, "--loops", "20")
    check(done.returncode == 1 and "verdict: worse than before" in done.stdout and
          "good:1 - level: NOT IN THE MATRIX" in done.stdout and "good:2" not in done.stdout,
          "what is not in the matrix any more", done)
    saved.write_text("{}")
    done = run("--matrix", path, "--against", saved)
    check(done.returncode == 2 and "passed" not in done.stdout and str(saved) in done.stderr and
          "--json" in done.stderr, "no report to compare with", done)


with tempfile.TemporaryDirectory() as room:
    test_matrix_files(Path(room))
    test_matrix_of_others(Path(room))
    test_matrix(Path(room))
    test_wrong_use()
    test_help_and_list()
    test_files(Path(room))
    test_failure(Path(room))
print("ok")
