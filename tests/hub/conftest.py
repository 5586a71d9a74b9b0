import os
import pathlib
import subprocess

import pytest

from hub import Hub, Repository

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PAGODA_BUILD_DIR", ROOT / "build-gcc"))
PAGODA = BUILD / "bin" / "pagoda"
NANO = ROOT / "models" / "nano"
SHARDED = ROOT / "tests" / "golden" / "models" / "llama-sharded"
UNWANTED = {"README.md": b"# words", "pytorch_model.bin": b"code", "onnx/model.onnx": b"x"}
SANITIZERS = ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")


def files_of(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


@pytest.fixture
def hub():
    with Hub() as h:
        h.repos["org/nano"] = Repository({**files_of(NANO), **UNWANTED}, ["main", "v1.0", "pr/1"])
        h.repos["org/parts"] = Repository(
            {**files_of(SHARDED), "tokenizer.json": (NANO / "tokenizer.json").read_bytes()})
        yield h


class Machine:
    """The program with a cache of its own that sees one hub."""

    def __init__(self, hub, home):
        self.hub, self.home = hub, home
        self.cache = home / "hub"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "HF_HOME": str(home),
                    "HF_ENDPOINT": hub.url, "HF_HUB_DOWNLOAD_TIMEOUT": "2",
                    "PAGODA_PLUGIN_PATH": str(BUILD / "lib" / "pagoda")}
        self.env.update({k: os.environ[k] for k in SANITIZERS if k in os.environ})

    def start(self, *args, env=None, **kwargs):
        return subprocess.Popen([PAGODA, *map(str, args)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**self.env, **(env or {})}, **kwargs)

    def run(self, *args, env=None, timeout=60, **kwargs):
        process = self.start(*args, env=env, **kwargs)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, out, err

    def take(self, name, **kwargs):
        """Finds the model `name`; the standard error of a run that must succeed."""
        status, out, err = self.run("inspect", name, "--json", **kwargs)
        assert status == 0, err
        return err

    def refuse(self, name, *words, **kwargs):
        status, out, err = self.run("inspect", name, "--json", **kwargs)
        assert status == 2, (status, out, err)
        assert out == ""
        for word in words:
            assert word in err, err
        return err

    def folder(self, name):
        return self.cache / ("models--" + name.replace("/", "--"))

    def snapshot(self, name):
        return self.folder(name) / "snapshots" / self.hub.repos[name].commit


@pytest.fixture
def machine(hub, tmp_path):
    return Machine(hub, tmp_path)
