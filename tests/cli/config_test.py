"""--config FILE: JSON and YAML, the order of the sources, and what is refused.

    config_test.py PAGODA SOURCE_DIR PLUGIN_DIR
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PAGODA, SOURCE, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
NANO = SOURCE / "models" / "nano"
TRACE = '{"at":0,"add":{"id":"r0","prompt":{"seed":1,"len":40},"max_tokens":2,"output":[1,2]}}\n'


def pagoda(*args, **env):
    keep = ("PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    full = {k: os.environ[k] for k in keep if k in os.environ}
    done = subprocess.run([PAGODA, *map(str, args)], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=120,
                          env={**full, "PAGODA_PLUGIN_PATH": PLUGINS, **env})
    return done.returncode, done.stdout, done.stderr


class Config(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        (self.root / "trace.jsonl").write_text(TRACE)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.write_text(text)
        return path

    def simulate(self, name, text):
        status, out, err = pagoda("simulate", "--trace", self.root / "trace.jsonl",
                                  "--config", self.write(name, text))
        self.assertEqual(status, 0, err)
        return out

    def refuse(self, text, *words, name="c.yaml"):
        status, out, err = pagoda("run", NANO, "-p", "x", "--config", self.write(name, text))
        self.assertEqual((status, out), (2, ""), err)
        for word in (name, *words):
            self.assertIn(word, err)


class Yaml(Config):
    def test_says_what_json_says(self):
        config = {"block_size": 8, "num_blocks": 20, "enable_prefix_caching": False,
                  "watermark": 0.25, "scheduling_policy": "priority", "sliding_window": None,
                  "kv_groups": [{"kind": "full"}, {"kind": "window", "window": 16}]}
        wanted = self.simulate("c.json", json.dumps(config))
        texts = ("""
# a comment
block_size: 8
num_blocks: +20
enable_prefix_caching: False
watermark: 2.5e-1
scheduling_policy: "priority"
sliding_window: ~
kv_groups:
  - kind: full
  - {kind: window, window: 16}
""", """---
{block_size: 8, num_blocks: 20, enable_prefix_caching: false, watermark: .25,
 scheduling_policy: priority, sliding_window: null,
 kv_groups: [{kind: full}, {"kind": 'window', "window": 16}]}
...
""")
        for text in texts:
            self.assertEqual(self.simulate("c.yaml", text), wanted)
        self.assertEqual(self.simulate("c.yaml", "# nothing\n"), self.simulate("c.json", "{}"))
        # JSON needs no name that ends in .json.
        self.assertEqual(self.simulate("c.conf", "\n " + json.dumps(config)), wanted)

    def test_flags(self):
        config = self.write("c.yaml", f"""
device: cpu
max-tokens: 3
temperature: 0
ignore-eos: true
memory: 64MiB     # a word, though it begins with digits
seed: 18446744073709551615
plugin:
  - {PLUGINS}/libpgd-null.so
json: true
""")
        status, out, err = pagoda("run", NANO, "-p", "Once", "--config", config)
        self.assertEqual(status, 0, err)
        self.assertEqual(len(json.loads(out)["token_ids"]), 3)

    def test_refused(self):
        self.refuse("max-tokens: &a 3\n", "line 1", "anchors")
        self.refuse("device: cpu\nmemory: *a\n", "line 2, column 9", "anchors")
        self.refuse("max-tokens: !!int 3\n", "tags")
        self.refuse("!!map {}\n", "tags")
        self.refuse("a: 1\n---\nb: 2\n", "second document")
        self.refuse("max-tokens: 3\nmax-tokens: 4\n", '"max-tokens"', "twice")
        self.refuse("device: {a: 1, a: 2}\n", '"a"', "twice")
        self.refuse("? [a]\n: 1\n", "no word")
        self.refuse("[" * 70 + "]" * 70, "64 levels")
        self.refuse("a: 'b\n", "line")
        self.refuse("a:\n\t- b\n", "line 2")
        self.refuse("device: \x01\n", "line 1")
        self.refuse("- device\n", "object of flag names")
        self.refuse("cpu\n", "object of flag names")
        self.refuse("".join(f"k{i}: 1\n" for i in range(5000)), "4096")

    def test_words_are_no_switches(self):
        for word in ("yes", "no", "on", "off"):
            self.refuse(f"ignore-eos: {word}\n", "--ignore-eos", word)

    def test_wrong_values_and_names(self):
        self.refuse("max-tokenz: 3\n", "max-tokenz", "did you mean --max-tokens")
        self.refuse("max-tokens: [3]\n", "max-tokens", "array")
        self.refuse("max-tokens: 3.5\n", "--max-tokens", "3.5")
        self.refuse("plugin: [1]\n", "--plugin", "strings")


class Order(Config):
    def n_tokens(self, *args, **env):
        status, out, err = pagoda("run", NANO, "-p", "Once", "--device", "cpu", "--json",
                                  "--ignore-eos", *args, **env)
        self.assertEqual(status, 0, err)
        return len(json.loads(out)["token_ids"])

    def test_config_environment_flag(self):
        config = self.write("c.json", '{"max-tokens": 2}')
        self.assertEqual(self.n_tokens("--config", config), 2)
        self.assertEqual(self.n_tokens(PAGODA_CONFIG=str(config)), 2)
        env = {"PAGODA_MAX_TOKENS": "3"}
        self.assertEqual(self.n_tokens("--config", config, **env), 3)
        self.assertEqual(self.n_tokens("--config", config, "-n", 4, **env), 4)

    def test_missing(self):
        status, _, err = pagoda("run", "-p", "x", "--config", self.root / "none.yaml")
        self.assertEqual(status, 2)
        self.assertIn("none.yaml", err)


if __name__ == "__main__":
    if "without libyaml" in pagoda("run", "-p", "x", "--config", "/dev/null", "--no-such")[2]:
        print("this build reads no YAML: its part of the tests is left out")
        del Yaml
    unittest.main(argv=sys.argv[:1])
