"""Plugins built at each kept minor of the interface run the default model on today's host.

    fossils_test.py PAGODA SOURCE_DIR [KIND...]

Each tests/abi/fossils/0.N/libpgd-KIND.so is a binary from the headers of that minor
(tools/fossils/build.sh). KINDs choose; none = all.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PAGODA, SOURCE, KINDS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
FOSSILS = sorted((SOURCE / "tests/abi/fossils").glob("0.*/*.so"))
MINORS = sorted(p.name for p in (SOURCE / "tests/abi/minors").iterdir())


def run(*args):
    keep = ("PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    env = {k: os.environ[k] for k in keep if k in os.environ}
    done = subprocess.run([PAGODA, *map(str, args)], stdin=subprocess.DEVNULL, env=env,
                          capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Fossils(unittest.TestCase):
    def test_every_kept_minor_has_one(self):
        self.assertEqual(sorted({p.parent.name for p in FOSSILS}), MINORS)

    def test_they_say_their_minor(self):
        for path in FOSSILS:
            status, out, err = run("devices", "--explain", "--json", "--plugin", path)
            self.assertEqual(status, 0, err)
            found = [d for d in json.loads(out)["devices"] if d["plugin"] == str(path)]
            self.assertEqual([(d["usable"], d["reason"]) for d in found], [(True, "usable")], path)
            minor = json.loads(path.with_suffix(".json").read_text())["abi"]["minor"]
            self.assertEqual(f"0.{minor}", path.parent.name)

    def test_they_answer(self):
        asked = 0
        for path in FOSSILS:
            kind = path.stem[len("libpgd-"):]
            if KINDS and kind not in KINDS:
                continue
            slow = ["--allow-slow"] if kind == "minimal" else []
            status, out, err = run("run", SOURCE / "models/nano", "--plugin", path, "--device",
                                   kind, *slow, "--chat", "-n", 8, "-p",
                                   "What is the capital of France?")
            self.assertEqual(status, 0, f"{path}: {err}")
            self.assertIn("Paris", out, path)
            asked += 1
        self.assertGreaterEqual(asked, len(MINORS))


if __name__ == "__main__":
    sys.argv[1:] = []
    unittest.main()
