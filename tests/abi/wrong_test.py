"""Plugins that do not fit, from outside: each is named by `devices --explain` and by the error of a
command that asks for it, with what to do.

    wrong_test.py PAGODA MODEL FOLDER

FOLDER has odd*/ (see odd_plugin.c) and minimal/.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PAGODA, MODEL, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])


def run(*args):
    keep = ("PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    env = {k: os.environ[k] for k in keep if k in os.environ}
    done = subprocess.run([PAGODA, *map(str, args)], stdin=subprocess.DEVNULL, env=env,
                          capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Wrong(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def copy(self, name, to="one", **changes):
        """A plugin in a folder of its own, its manifest changed."""
        place = self.root / to
        place.mkdir()
        file = f"libpgd-{name}"
        shutil.copy(FOLDER / name / f"{file}.so", place)
        manifest = json.loads((FOLDER / name / f"{file}.json").read_text())
        manifest.update(changes)
        (place / f"{file}.json").write_text(json.dumps(manifest))
        return place / f"{file}.so"

    def refused(self, path, kind, *words):
        status, out, err = run("devices", "--explain", "--json", "--plugin", path)
        self.assertEqual(status, 0, err)
        reasons = [d["reason"] for d in json.loads(out)["devices"]
                   if d["plugin"] == str(path) and not d["usable"]]
        self.assertEqual(len(reasons), 1, out)
        status, out, err = run("plan", MODEL, "--device", kind, "--plugin", path, "--allow-slow")
        self.assertEqual(status, 2, err)
        self.assertIn(str(path), err)
        for word in words:
            self.assertIn(word, reasons[0])
            self.assertIn(word, err)

    def test_newer(self):
        # The library says so, and the manifest does before anything is opened.
        self.refused(FOLDER / "odd2/libpgd-odd2.so", "odd", "needs a host of interface 0.9",
                     "take a newer pagoda or an older build of the plugin")
        path = self.copy("minimal", abi={"major": 0, "minor": 9, "min_host_minor": 9})
        self.refused(path, "minimal", "needs a host of interface 0.9",
                     "take a newer pagoda or an older build of the plugin")
        path = self.copy("minimal", "two", abi={"major": 1, "minor": 0, "min_host_minor": 0})
        self.refused(path, "minimal", "interface version 1, this host has 0",
                     "take a build of the plugin for version 0")

    def test_layout(self):
        self.refused(FOLDER / "odd1/libpgd-odd1.so", "odd", "was built with headers of layout",
                     "build it with the headers of a released pagoda-sdk")

    def test_lies(self):
        correct = "correct the manifest, or put the library there that it describes"
        self.refused(self.copy("minimal", "kind", kind="acme"), "acme",
                     "calls itself 'minimal', but its manifest says kind 'acme'", correct)
        self.refused(self.copy("minimal", "version", version="2.0"), "minimal",
                     "is version '0.1.0', but its manifest says '2.0'", correct)
        minor = {"major": 0, "minor": 1, "min_host_minor": 1}
        self.refused(self.copy("minimal", "minor", abi=minor), "minimal",
                     "was built with interface 0.", "but its manifest says 0.1 and 0.1", correct)
        self.refused(FOLDER / "odd13/libpgd-odd13.so", "odd",
                     "has the role layer, but its manifest says backend", correct)
        self.refused(self.copy("minimal", "sha256", sha256="0" * 64), "minimal",
                     "its sha256 is", "the manifest says 0000", "install the two from one package")

    def test_no_manifest(self):
        path = self.copy("minimal")
        path.with_suffix(".json").unlink()
        words = f"it has no manifest {path.with_suffix('.json')}; put the plugin's JSON file there"
        self.refused(path, "minimal", words)
        path.with_suffix(".json").write_text("{")
        self.refused(path, "minimal", "its manifest cannot be read")

    def test_layer_by_its_manifest(self):
        path = self.copy("minimal", role="layer")
        status, out, err = run("plan", MODEL, "--device", "minimal", "--plugin", path)
        self.assertEqual(status, 2, err)
        self.assertIn("'minimal' is a layer, not a device", err)

    def test_two_of_one_name(self):
        good = self.copy("minimal", "good")
        other = self.copy("minimal", "other")
        status, out, err = run("devices", "--explain", "--json", "--plugin", good, "--plugin",
                               other)
        self.assertEqual(status, 0, err)
        found = {d["plugin"]: d for d in json.loads(out)["devices"]}
        self.assertTrue(found[str(good)]["usable"])
        self.assertFalse(found[str(other)]["usable"])
        self.assertIn(f"its kind is already given by {good}, which comes first; remove one of them, or "
                      "name the one to use with --plugin", found[str(other)]["reason"])
        status, out, err = run("devices", "--explain", "--json", "--plugin",
                               FOLDER / "odd2/libpgd-odd2.so", "--plugin",
                               FOLDER / "odd1/libpgd-odd1.so")
        reasons = [d["reason"] for d in json.loads(out)["devices"] if d["kind"] == "odd"]
        self.assertEqual(len(reasons), 2, out)
        self.assertIn("needs a host of interface 0.9", reasons[0])
        self.assertIn("which comes first", reasons[1])
        # When the first cannot be opened the error names both.
        lies = self.copy("minimal", "lies", version="2.0")
        status, out, err = run("plan", MODEL, "--device", "minimal", "--plugin", lies, "--plugin",
                               good)
        self.assertEqual(status, 2, err)
        for word in ("is version '0.1.0'", str(lies),
                     f"while {good} is of kind 'minimal' too; remove one of the two"):
            self.assertIn(word, err)

    def test_names_of_devices(self):
        kinds = "there are auto, "
        for device, *words in (
                ("acme", "'acme'", "there is no such kind", kinds),
                ("nothing(null)", "no layer 'nothing'", "layers are check, fault, trace"),
                ("check{foo=1}(null)", "layer 'check' has no option 'foo'", "allowed: stop"),
                ("check{stop=maybe}(null)", "'stop' of 'check' is 'maybe'"),
                ("null{foo=1}", "device 'null' has no option 'foo'", "allowed: step_us"),
                ("null:9", "there is no device null:9", "has 1")):
            for command in (("run", MODEL, "-p", "x", "-n", "1"), ("plan", MODEL)):
                status, out, err = run(*command, "--device", device)
                self.assertEqual(status, 2, err)
                self.assertEqual(out, "")
                for word in words:
                    self.assertIn(word, err)
            if device == "null:9": # a standby may come up later
                continue
            status, out, err = run("run", MODEL, "-p", "x", "-n", "1", "--device", "null",
                                   "--standby", device)
            self.assertEqual(status, 2, err)
            for word in (*words, "while looking for the standby"):
                self.assertIn(word, err)


if __name__ == "__main__":
    sys.argv[1:] = []
    unittest.main()
