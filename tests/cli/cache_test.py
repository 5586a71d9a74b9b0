"""The cache of packed weights from outside: what is kept, when it is used, what makes it new.

    cache_test.py PAGODA SOURCE_DIR PLUGIN_DIR
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PAGODA, SOURCE, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
NANO = SOURCE / "models" / "nano"


class Cache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.top = pathlib.Path(self.folder.name)
        self.cache = self.top / "cache"

    def run_model(self, model=NANO, size="1GiB", device="cpu", status=0, env=None, flags=()):
        full = {"PATH": os.environ["PATH"], "PAGODA_PLUGIN_PATH": PLUGINS, "HOME": str(self.top)}
        for key in ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            if key in os.environ:
                full[key] = os.environ[key]
        full.update(env or {"PAGODA_CACHE": str(self.cache)})
        command = [PAGODA, "run", str(model), "-p", "Once upon a time", "-n", "16", "-t", "0",
                   "--device", device, "--max-model-len", "64", *flags]
        if size is not None:
            command += ["--weight-cache", size]
        done = subprocess.run(command, capture_output=True, env=full, timeout=300)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        return done.stdout if status == 0 else done.stderr.decode()

    def files(self, folder=None):
        folder = folder or self.cache / "weights"
        return sorted(folder.iterdir()) if folder.exists() else []

    def copy_of_nano(self):
        copy = self.top / "model"
        shutil.copytree(NANO, copy)
        return copy

    def test_kept_and_used(self):
        plain = self.run_model(size="off")
        self.assertEqual(self.files(), [])
        self.assertEqual(self.run_model(), plain)
        (kept,) = self.files()
        self.assertGreater(kept.stat().st_size, (NANO / "model.safetensors").stat().st_size // 2)
        inode = kept.stat().st_ino
        self.assertEqual(self.run_model(), plain)
        self.assertEqual([f.stat().st_ino for f in self.files()], [inode])

    def test_its_bytes_are_the_ones_used(self):
        """With zeros in place of the packed weights the answer is another: nothing is packed."""
        plain = self.run_model()
        (kept,) = self.files()
        size = kept.stat().st_size
        with open(kept, "r+b") as f:
            f.seek(8192)
            f.write(bytes(size - 8192))
        self.assertNotEqual(self.run_model(), plain)

    def test_torn_is_written_anew(self):
        plain = self.run_model()
        (kept,) = self.files()
        whole = kept.read_bytes()
        for cut in (0, 40, 5000, len(whole) - 1):
            kept.write_bytes(whole[:cut])
            self.assertEqual(self.run_model(), plain)
            self.assertEqual(self.files(), [kept])
            self.assertEqual(kept.read_bytes(), whole)

    def test_another_model_at_the_same_path(self):
        model = self.copy_of_nano()
        first = self.run_model(model)
        self.assertEqual(len(self.files()), 1)
        weights = model / "model.safetensors"
        data = bytearray(weights.read_bytes())
        status = weights.stat()
        # The last quarter of the numbers become zeros; size, name and time stay what they were.
        data[len(data) * 3 // 4:] = bytes(len(data) - len(data) * 3 // 4)
        weights.write_bytes(data)
        os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.assertNotEqual(self.run_model(model), first)
        self.assertEqual(len(self.files()), 2)

    def test_one_file_a_layout(self):
        self.run_model()
        self.run_model(device="cpu{act=f32}")
        self.run_model(device="cpu{act=bf16}")
        self.assertEqual(len(self.files()), 2)

    def test_limit(self):
        self.run_model(size="100KiB")
        self.assertEqual(self.files(), [])
        self.run_model(size="10MB")
        self.run_model(self.copy_of_nano(), size="10MB")
        self.assertEqual(len(self.files()), 1)

    def test_a_cache_that_cannot_be_written(self):
        plain = self.run_model(size="off")
        self.cache.write_text("a file in its place")
        self.assertEqual(self.run_model(), plain)

    def test_small_models_are_not_kept_by_themselves(self):
        self.run_model(size=None)
        self.assertEqual(self.files(), [])

    def test_folders(self):
        self.run_model(env={"XDG_CACHE_HOME": str(self.top / "xdg")})
        self.assertEqual(len(self.files(self.top / "xdg" / "pagoda" / "weights")), 1)
        self.run_model(env={"UNUSED": "1"})
        self.assertEqual(len(self.files(self.top / ".cache" / "pagoda" / "weights")), 1)

    def test_wrong_use(self):
        said = self.run_model(size="much", status=2)
        self.assertIn("much", said)
        self.assertIn("off", said)

    def test_synthetic(self):
        shape = "synthetic:" + str(SOURCE / "tests" / "golden" / "models" / "llama-default")

        def first(name):
            self.run_ids(name)
            return len(self.files())

        self.assertEqual(first(shape), 1)
        self.assertEqual(first(shape), 1)
        self.assertEqual(first(shape + ",seed=1"), 2)
        self.assertEqual(first(shape + ",f32"), 3)

    def run_ids(self, name):
        env = {"PATH": os.environ["PATH"], "PAGODA_PLUGIN_PATH": PLUGINS,
               "PAGODA_CACHE": str(self.cache), "PAGODA_WEIGHT_CACHE": "1GiB"}
        subprocess.run([PAGODA, "bench", "latency", name, "--device", "cpu", "--output-len", "2",
                        "--repeat", "1", "--warmup", "0", "--limit-ms", "1", "--input-len", "4"],
                       capture_output=True, env=env, timeout=300, check=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
