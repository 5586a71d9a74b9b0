"""One cache for two programs: what huggingface_hub has downloaded is found by pagoda, and the other
way round. huggingface_hub reads its environment when it is imported, so it runs in a process."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("huggingface_hub")

SNAPSHOT = """
import json, sys
from huggingface_hub import snapshot_download
print(json.dumps(snapshot_download(sys.argv[1], **json.loads(sys.argv[2]))))
"""
FILES = """
import json, sys
from huggingface_hub import hf_hub_download, try_to_load_from_cache, _CACHED_NO_EXIST
known = {}
for name in sys.argv[2:]:
    found = try_to_load_from_cache(sys.argv[1], name)
    known[name] = "absent" if found is _CACHED_NO_EXIST else found
print(json.dumps(known))
"""


def python(machine, script, *args, env=None):
    full = {**machine.env, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "127.0.0.1", **(env or {})}
    done = subprocess.run([sys.executable, "-c", script, *args], env=full, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["org/nano", "org/parts"])
def test_theirs_is_read_by_us(machine, hub, name):
    folder = python(machine, SNAPSHOT, name, "{}")
    assert folder == str(machine.snapshot(name))
    hub.log.clear()
    machine.take(name)
    assert hub.log == []


def test_theirs_at_a_revision(machine, hub):
    python(machine, SNAPSHOT, "org/nano", json.dumps({"revision": "pr/1"}))
    machine.take("org/nano@pr/1", env={"HF_HUB_OFFLINE": "1"})


def test_theirs_in_part(machine, hub):
    """Their download of some files: we bring the rest, and no byte twice."""
    python(machine, SNAPSHOT, "org/nano", json.dumps({"allow_patterns": ["*.safetensors"]}))
    hub.log.clear()
    machine.take("org/nano")
    assert hub.requests("storage") == []


@pytest.mark.parametrize("name", ["org/nano", "org/parts"])
def test_ours_is_read_by_them(machine, hub, name):
    machine.take(name)
    hub.log.clear()
    options = {"local_files_only": True}
    assert python(machine, SNAPSHOT, name, json.dumps(options)) == str(machine.snapshot(name))
    known = python(machine, FILES, name, "config.json", "tokenizer.json", "chat_template.jinja")
    for file, found in known.items():
        listed = file in hub.repos[name].files
        assert found == (str(machine.snapshot(name) / file) if listed else "absent")
    assert hub.log == []


def test_ours_is_not_downloaded_again_by_them(machine, hub):
    machine.take("org/nano")
    hub.log.clear()
    python(machine, SNAPSHOT, "org/nano", json.dumps({"allow_patterns": ["*.safetensors",
                                                                        "*.json"]}))
    assert hub.requests("storage") == []


def test_our_lock_is_their_lock(machine, hub):
    """While one downloads a blob the other waits, then takes it from the cache."""
    hub.pause = 0.01
    ours = machine.start("inspect", "org/nano", "--json")
    for _ in range(500):
        if hub.requests("storage", "GET"):
            break
        hub.slow.wait(0.02)
    python(machine, SNAPSHOT, "org/nano", json.dumps({"allow_patterns": ["*.safetensors"]}))
    _, err = ours.communicate(timeout=60)
    assert ours.returncode == 0, err
    assert len(hub.requests("storage", "GET")) == 1
