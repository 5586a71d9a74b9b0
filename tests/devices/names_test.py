"""Device names and choices from outside: pci, uuid, aliases, one chip under several plugins, auto,
manifests that say there is nothing to open, and which plugins are opened at all.

    names_test.py PAGODA SOURCE_DIR PLUGIN_DIR CHIP_DIR

CHIP_DIR has alpha (two chips), beta, gamma and tiny; see CMakeLists.txt for what they claim.
"""

import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PAGODA, SOURCE, PLUGINS, CHIPS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
TINY = SOURCE / "tests" / "golden" / "models" / "llama-default"
NANO = SOURCE / "models" / "nano"
UUID = {1: "01" * 16, 2: "02020202-0202-0202-0202-020202020202"}


class WithChips(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.log = self.root / "opened"
        self.path = f"{PLUGINS}:{CHIPS}"

    def tearDown(self):
        self.folder.cleanup()

    def pagoda(self, *args):
        keep = ("PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
        env = {k: os.environ[k] for k in keep if k in os.environ}
        env["OCL_ICD_VENDORS"] = str(self.root / "none")  # no OpenCL device, whatever is here
        env.update(PAGODA_PLUGIN_PATH=self.path, CHIP_OPENED=str(self.log))
        self.log.unlink(missing_ok=True)
        done = subprocess.run([PAGODA, *map(str, args)], stdin=subprocess.DEVNULL, env=env,
                              capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def opened(self):
        return set(self.log.read_text().split()) if self.log.exists() else set()

    def plan(self, *args, model=TINY):
        # Most chips here compute nothing themselves; a device that is named is taken all the same.
        slow = ["--allow-slow"] if "--device" in args else []
        status, out, err = self.pagoda("plan", model, "--json", *args, *slow)
        self.assertEqual(status, 0, err)
        return json.loads(out)

    def refuse(self, device, *words):
        status, out, err = self.pagoda("plan", TINY, "--device", device)
        self.assertEqual((status, out), (2, ""), err)
        for word in words:
            self.assertIn(word, err)

    def devices(self):
        status, out, err = self.pagoda("devices", "--explain", "--json")
        self.assertEqual(status, 0, err)
        return json.loads(out)["devices"]

    def copy(self, kind, **changes):
        """A folder of its own with one chip plugin, its manifest changed."""
        folder = self.root / "plugins"
        folder.mkdir(exist_ok=True)
        shutil.copy(f"{CHIPS}/libpgd-{kind}.so", folder)
        manifest = json.loads(pathlib.Path(CHIPS, f"libpgd-{kind}.json").read_text())
        manifest.update(changes)
        (folder / f"libpgd-{kind}.json").write_text(json.dumps(manifest))
        self.path = f"{PLUGINS}:{folder}"
        return folder / f"libpgd-{kind}.so"


class Names(WithChips):
    def test_kind_and_alias(self):
        for name, uri in (("alpha", "alpha:0"), ("alpha:1", "alpha:1"), ("alphas:1", "alpha:1"),
                          ("betas", "beta:0")):
            self.assertEqual(self.plan("--device", name)["device"], uri)
        self.refuse("alpha:2", "alpha:2", "has 2")
        self.refuse("delta", "delta", "alpha", "beta", "cpu")

    def test_pci(self):
        for name, uri in (("pci:0000:66:00.0", "alpha:1"), ("pci:66:00.0", "alpha:1"),
                          ("pci:00000000:66:00.0", "alpha:1"), ("pci:0000:67:00.0", "beta:1"),
                          ("pci:0000:6a:00.0", "beta:0"), ("pci:0000:6A:00.0", "beta:0")):
            self.assertEqual(self.plan("--device", name)["device"], uri)
        self.refuse("pci:0000:01:00.0", "pci:0000:01:00.0", "alpha:1: at 0000:66:00.0")
        for name in ("pci", "pci:", "pci:66", "pci:0000:66:00", "pci:0000:66:00.0x", "pci:zz:00.0",
                     "pci:0001:66:00.0"):
            self.refuse(name, name)

    def test_uuid(self):
        for name, uri in ((f"uuid:GPU-{UUID[2]}", "alpha:1"), (f"uuid:{UUID[2]}", "alpha:1")):
            self.assertEqual(self.plan("--device", name)["device"], uri)
        self.refuse("uuid:" + "03" * 16, "no usable device is that chip")
        for name in ("uuid", "uuid:", "uuid:GPU-12", "uuid:" + "0" * 33, "uuid:GPU-" + "g" * 32):
            self.refuse(name, name)

    def test_options_stay(self):
        self.refuse("pci:0000:66:00.0{color=red}", "color")
        self.refuse("uuid:" + UUID[2] + "{color=red}", "color")


class OneChip(WithChips):
    def test_listed_once(self):
        found = {d["uri"]: d for d in self.devices() if d["uri"]}
        self.assertEqual({u for u, d in found.items() if d["usable"]},
                         {"beta:0", "beta:1", "alpha:1", "tiny:0", "cpu:0", "null:0"})
        self.assertIn("the same chip as beta:0", found["alpha:0"]["reason"])
        self.assertIn("0000:6A:00.0", found["alpha:0"]["reason"])
        self.assertIn("score is 20, this one's 10", found["alpha:0"]["reason"])
        self.assertIn("the same chip as alpha:1", found["gamma:0"]["reason"])
        status, out, _ = self.pagoda("devices")
        self.assertEqual(status, 0)
        self.assertNotIn("gamma:0", out)
        self.assertNotIn("alpha:0", out)
        self.assertIn("alpha:1", out)

    def test_by_name_it_works(self):
        self.assertEqual(self.plan("--device", "alpha:0")["device"], "alpha:0")
        self.assertEqual(self.plan("--device", "gamma")["device"], "gamma:0")


class Auto(WithChips):
    def test_refused_operations(self):
        """The faster chips compute nothing themselves: auto passes them over, and says so."""
        plan = self.plan()
        self.assertEqual(plan["device"], "cpu:0")
        for word in ("cpu:0", "is chosen", "alpha:1 is not:", "beta:0 is not:", "--allow-slow"):
            self.assertIn(word, plan["device_reason"])

    def test_bandwidth(self):
        plan = self.plan("--allow-slow")
        self.assertEqual(plan["device"], "alpha:1")
        for word in ("500.0 GB/s", "tiny:0 is not:", "does not fit"):
            self.assertIn(word, plan["device_reason"])
        status, out, err = self.pagoda("plan", TINY, "--allow-slow", "--device", "auto")
        self.assertEqual(status, 0, err)
        self.assertIn("alpha:1", out)
        self.assertIn("is chosen", out)

    @unittest.skipUnless(platform.machine() == "x86_64", "elsewhere the processor does not know")
    def test_slower_than_memory(self):
        """The processor knows its own bandwidth: a slower device is not preferred to it."""
        self.path = f"{CHIPS}/slow:{PLUGINS}"
        plan = self.plan("--allow-slow")
        self.assertEqual(plan["device"], "cpu:0")
        self.assertIn("crawl", self.opened())
        said = re.search(r"most memory bandwidth \(([0-9.]+) GB/s\)", plan["device_reason"])
        self.assertIsNotNone(said, plan["device_reason"])
        self.assertTrue(0.01 < float(said[1]) < 20000, said[1])
        self.path = f"{CHIPS}:{CHIPS}/slow"  # without it the fastest chip, then the slow one
        self.assertEqual(self.plan("--allow-slow")["device"], "alpha:1")

    def test_said_on_stderr(self):
        status, out, err = self.pagoda("run", NANO, "-p", "Once", "-n", 2, "-q")
        self.assertEqual(status, 0, err)
        self.assertIn("pagoda: device cpu:0", err)
        self.assertIn("alpha:1 is not", err)
        self.path = PLUGINS
        status, out, err = self.pagoda("run", NANO, "-p", "Once", "-n", 2, "-q")
        self.assertEqual((status, err), (0, ""))  # nothing to choose, nothing to say

    def test_none_fits(self):
        self.path = CHIPS
        status, out, err = self.pagoda("run", TINY, "-p", "x", "--memory", "1000")
        self.assertEqual(status, 2)
        status, out, err = self.pagoda("plan", NANO, "--memory", "1000", "--allow-slow")
        self.assertEqual((status, out), (2, ""))
        for word in ("auto finds no device", "alpha:1", "beta:1", "does not fit"):
            self.assertIn(word, err)

    def test_a_wrong_value_is_no_reason_to_look_on(self):
        status, out, err = self.pagoda("plan", TINY, "--kv-cache-dtype", "fp3")
        self.assertEqual((status, out), (2, ""))
        self.assertTrue(err.startswith("pagoda: kv-cache-dtype is \"fp3\""), err)


class Slow(WithChips):
    def test_places_and_refusal(self):
        status, out, err = self.pagoda("plan", TINY, "--device", "beta", "--json")
        self.assertEqual(status, 2)  # what `run` would refuse; the plan is printed all the same
        plan = json.loads(out)
        self.assertGreater(plan["slow_operations"], 0)
        self.assertIn("--allow-slow", err)
        self.assertEqual({op["place"] for op in plan["operations"]}, {"F1", "F3"})
        for op in plan["operations"]:
            self.assertTrue(op["reason"], op)
        status, out, err = self.pagoda("run", NANO, "-p", "x", "--device", "beta")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("--allow-slow", err)
        status, out, err = self.pagoda("run", NANO, "-p", "Once", "-n", 4, "--device", "beta",
                                       "--allow-slow", "--temperature", 0)
        self.assertEqual(status, 0, err)
        same = self.pagoda("run", NANO, "-p", "Once", "-n", 4, "--device", "cpu",
                           "--temperature", 0)
        self.assertEqual(out, same[1])


class Opened(WithChips):
    """Only the plugins that were asked for are opened: each writes down when it is."""

    def test_by_name(self):
        self.assertEqual(self.pagoda("run", NANO, "-p", "Once", "-n", 2, "--device", "cpu")[0], 0)
        self.assertEqual(self.opened(), set())
        self.plan("--device", "beta")
        self.assertEqual(self.opened(), {"beta"})
        self.plan("--device", "alphas:1")
        self.assertEqual(self.opened(), {"alpha"})
        self.assertEqual(self.pagoda("plugins")[0], 0)
        self.assertEqual(self.opened(), set())
        self.devices()
        self.assertEqual(self.opened(), {"alpha", "beta", "gamma", "tiny"})

    def test_without_pci_chips(self):
        self.copy("gamma", matches=[])
        self.copy("alpha")
        self.plan("--device", "pci:0000:66:00.0")
        self.assertEqual(self.opened(), {"alpha"})

    def test_no_such_chip(self):
        if not os.path.isdir("/sys/bus/pci/devices"):
            self.skipTest("this system does not list its chips")
        self.copy("beta", matches=["pci:fffe:*"])
        found = [d for d in self.devices() if d["kind"] == "beta"]
        self.assertEqual(len(found), 1)
        self.assertIn("no such chip", found[0]["reason"])
        self.assertIn("pci:fffe:*", found[0]["reason"])
        self.assertFalse(found[0]["usable"])
        self.refuse("beta", "beta", "no such chip")
        status, out, _ = self.pagoda("plugins", "beta")
        self.assertEqual(status, 0)
        self.assertIn("no such chip", out)
        self.assertEqual(self.opened(), set())

    def test_no_driver(self):
        self.copy("beta", needs=["libc.so.6", "libnot-there.so.9"])
        found = [d for d in self.devices() if d["kind"] == "beta"]
        self.assertIn("driver not installed: libnot-there.so.9", found[0]["reason"])
        self.refuse("beta", "driver not installed", "libnot-there.so.9")
        self.assertEqual(self.opened(), set())
        self.copy("beta", needs=["libc.so.6", "/proc/self/status"])
        self.assertEqual(self.plan("--device", "beta")["device"], "beta:0")

    def test_sha256(self):
        right = hashlib.sha256(pathlib.Path(CHIPS, "libpgd-beta.so").read_bytes()).hexdigest()
        self.copy("beta", sha256=right)
        self.assertEqual(self.plan("--device", "beta")["device"], "beta:0")
        wrong = "0" * 64
        self.copy("beta", sha256=wrong)
        self.refuse("beta", "libpgd-beta.so", right, wrong)
        found = [d for d in self.devices() if d["kind"] == "beta"]
        self.assertIn("sha256", found[0]["reason"])
        self.assertEqual(self.opened(), set())
        self.copy("beta", sha256="abc")
        self.refuse("beta", "sha256", "abc", "64 digits")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
