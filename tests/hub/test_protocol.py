"""Answers that break the hub's protocol, things in the way in the cache, odd environments."""
import json
import shutil

import pytest

from conftest import Machine
from hub import Repository


@pytest.fixture
def parts(hub):
    return hub.repos["org/parts"]


# Answers ------------------------------------------------------------------------------------------

def test_a_server_at_its_limit_is_asked_again(machine, hub):
    hub.answers = [("HEAD", "/config.json", 503, {}), ("HEAD", "/config.json", 429, {}),
                   ("HEAD", "/config.json", 408, {}), ("GET", "signed", 500, {}),
                   ("GET", "signed", 416, {})]
    machine.take("org/parts")
    assert hub.answers == []
    assert len(hub.requests("hub", "HEAD", "/config.json")) == 4


def test_a_server_that_stays_at_its_limit(machine, hub):
    hub.answers = [("HEAD", "/config.json", 503, {})] * 4
    machine.refuse("org/parts", "answers 503", "/config.json")
    assert hub.answers == []


@pytest.mark.parametrize("status, code, words", [
    (404, "EntryNotFound", ["has no file", "/config.json"]),
    (404, "RevisionNotFound", ["has no revision", "main"]),
    (404, "RepoNotFound", ["no such repository"]),
    (404, "", ["no such repository"]),
    (401, "", ["no such repository", "HF_TOKEN"]),
    (403, "", ["refuses", "/config.json"]),
    (418, "", ["answers 418"]),
    (204, "", ["answers 204"]),
])
def test_refusals(machine, hub, status, code, words):
    # A status below 400 may pass, so it is asked four times.
    hub.answers = [("HEAD", "/config.json", status, {"X_Error_Code": code})] * 4
    machine.refuse("org/parts", *words)


@pytest.mark.parametrize("status", [301, 302, 303, 308])
def test_redirects(machine, hub, parts, status):
    path = f"/org/parts/resolve/{parts.commit}/config.json"
    hub.answers = [("HEAD", "/config.json", status, {"Location": path + "?again"}),
                   ("GET", "/config.json", status, {"Location": hub.url + path + "?again"})]
    machine.take("org/parts")
    assert len(hub.requests("hub", None, "?again")) == 2


def test_redirect_to_nowhere(machine, hub):
    hub.answers = [("HEAD", "/config.json", 302, {})] * 4
    machine.refuse("org/parts", "redirects to nowhere")


@pytest.mark.parametrize("etag, words", [
    ("", ["etag"]), (".hidden", ["etag"]), ("a/b", ["etag"]), ("a b", ["etag"]),
    ("a~", ["etag"]), ("[x]", ["etag"]), ("@", ["etag"]), ("x" * 130, ["etag"]),
    ("x" * 300, ["etag"]), ("A-b_c.9Z", []), ("g" * 40, []), ("0" * 39, []),
    ("0" * 40, ["checksum", "0" * 40]), ("0" * 64, ["checksum"]),
])
def test_etags(machine, hub, etag, words):
    hub.lies["config.json"] = etag
    if words:
        machine.refuse("org/parts", *words)
    else:  # no checksum: nothing to check
        machine.take("org/parts")
        assert (machine.folder("org/parts") / "blobs" / etag).exists()


@pytest.mark.parametrize("etag, taken", [("x", True), ('W/"x"', True), ('"x', False)])
def test_etags_as_sent(machine, hub, parts, etag, taken):
    size = len(parts.files["config.json"])
    hub.answers = [("HEAD", "/config.json", 200, {"ETag": etag, "Content_Length": size})]
    if taken:
        machine.take("org/parts")
        assert (machine.folder("org/parts") / "blobs" / "x").stat().st_size == size
    else:
        machine.refuse("org/parts", "etag")


@pytest.mark.parametrize("headers", [{"Content_Range": "bytes 7-9/10"},
                                     {"Content_Range": "lines 3-9/10"}, {}])
def test_another_range(machine, hub, headers):
    blobs = machine.folder("org/nano") / "blobs"
    blobs.mkdir(parents=True)
    repo = hub.repos["org/nano"]
    (blobs / (repo.etag("model.safetensors") + ".incomplete")).write_bytes(
        repo.files["model.safetensors"][:1000])
    hub.answers = [("GET", "signed", 206, headers, b"abc")]
    machine.refuse("org/nano", "asked for bytes from 1000, got others")


@pytest.mark.parametrize("body", [
    b"<html>", b"[]", b"{}", b'{"sha": 3, "siblings": []}', b'{"sha": "abc", "siblings": []}',
    b'{"sha": "%s"}' % (b"0" * 40), b'{"sha": "%s", "siblings": {}}' % (b"0" * 40)])
def test_no_description(machine, hub, body):
    hub.answers = [("GET", "/api/models", 200, {}, body)]
    machine.refuse("org/parts", "hub's answer" if body == b"<html>" else "no description")


def test_a_list_with_odd_entries(machine, hub, parts):
    files = [1, {}, {"rfilename": 3}, {"rfilename": ""}]
    files += [{"rfilename": name} for name in parts.files]
    hub.answers = [("GET", "/api/models", 200, {"X_" + "Long_" * 20: "1"},
                    json.dumps({"sha": parts.commit, "siblings": files}).encode())]
    machine.take("org/parts")


def sharded(parts, weight_map, more=()):
    files = dict(parts.files)
    files["model.safetensors.index.json"] = json.dumps({"weight_map": weight_map}).encode()
    files.update(more)
    return Repository(files)


def test_indexes(machine, hub, parts):
    long = "a" * 300 + ".safetensors"
    hub.repos["org/long"] = sharded(parts, {"x": long}, {long: b"x"})
    machine.refuse("org/long", "a file name that ends in .safetensors")
    hub.repos["org/none"] = sharded(parts, {"x": "b.safetensors"})
    machine.refuse("org/none", "b.safetensors", "does not have")
    hub.answers = [("HEAD", "index.json", 404, {"X_Error_Code": "EntryNotFound"})]
    machine.refuse("org/parts", "has no file", "index.json")


def test_sizes_beyond_64_bits(machine, hub):
    hub.lies["size"] = 2**63 + 5
    machine.refuse("org/parts", "64 bits")


def test_a_repository_without_weights(machine, hub):
    hub.repos["org/words"] = Repository({"README.md": b"x"})
    err = machine.refuse("org/words", "neither model.safetensors nor")
    assert "pytorch" not in err
    hub.repos["org/bins"] = Repository({"pytorch_model.bin.index.json": b"{}"})
    machine.refuse("org/bins", "can run code")


# In the way ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("what, kind, words", [
    ("blobs", "file", "cannot be made"),
    ("blobs/ETAG", "folder", "cannot be written"),
    ("blobs/ETAG.incomplete", "folder", "cannot be written"),
    ("../.locks", "file", "cannot be made"),
    ("../.locks/models--org--parts/ETAG.lock", "folder", "cannot be locked"),
    ("snapshots", "file", "cannot be made"),
    ("snapshots/COMMIT/config.json", "folder", "cannot be made a link"),
    ("refs", "file", "cannot be made"),
    ("refs/main", "folder", "cannot be written"),
    (".no_exist", "file", "cannot be made"),
])
def test_in_the_way(machine, hub, parts, what, kind, words):
    folder = machine.folder("org/parts")
    folder.mkdir(parents=True)
    path = folder / what.replace("ETAG", parts.etag("config.json")).replace("COMMIT", parts.commit)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        path.write_text("not a folder")
    else:
        (path / "more").mkdir(parents=True)
    machine.refuse("org/parts", words)
    shutil.rmtree(path) if kind == "folder" else path.unlink()
    machine.take("org/parts")  # nothing is left that is wrong


# The environment ----------------------------------------------------------------------------------

@pytest.mark.parametrize("env, folder", [
    ({"HF_HUB_CACHE": "~/mine"}, "mine"),
    ({"HF_HOME": "~/house"}, "house/hub"),
    ({"HF_HOME": "", "XDG_CACHE_HOME": "~/xdg"}, "xdg/huggingface/hub"),
    ({"HF_HOME": ""}, ".cache/huggingface/hub"),
    ({"HUGGINGFACE_HUB_CACHE": "~/old/", "HF_HUB_OFFLINE": "no"}, "old"),
])
def test_folders(machine, env, folder):
    machine.take("org/parts", env={**env, "HF_HUB_DOWNLOAD_TIMEOUT": "99999999",
                                   "SSL_CERT_FILE": "", "CURL_CA_BUNDLE": "/nowhere.pem"})
    assert (machine.home / folder / "models--org--parts" / "snapshots").is_dir()


def test_folders_that_cannot_be(machine):
    machine.refuse("org/parts", "all unset", env={"HF_HOME": "", "HOME": ""})
    for name in ("HF_HUB_CACHE", "HF_HOME", "HF_TOKEN_PATH"):
        machine.refuse("org/parts", "has 3073 bytes" if name != "HF_HOME" else "3073",
                       env={name: "/" + "a" * 3072})
    # HF_HOME fits, and what is below it does not.
    machine.refuse("org/parts", "bytes", env={"HF_HOME": "/" + "a" * 3068})


def test_endpoints(machine, hub):
    machine.take("org/parts", env={"HF_ENDPOINT": hub.url + "//"})
    for url in ("/", "http:/", "https://" + "h" * 600):
        machine.refuse("org/nano", "HF_ENDPOINT", env={"HF_ENDPOINT": url})


def test_tokens(machine, hub, parts):
    parts.token = "hf_x"
    machine.refuse("org/parts", "no token is set",
                   env={"HF_TOKEN": "hf_x", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "YES"})
    machine.refuse("org/parts", "no token is set", env={"HF_TOKEN": "x" * 5000})
    machine.refuse("org/parts", "the token has 1010 bytes", env={"HF_TOKEN": "x" * 1010})
    machine.refuse("org/parts", "control character", env={"HF_TOKEN": "x\x7f"})
    (machine.home / "secret").write_text(" hf_x\n")
    machine.take("org/parts", env={"HF_TOKEN_PATH": "~/secret"})


def test_revision_names(machine):
    for revision in ("x" * 128, "a\x7fb", "a:b", "a..b", "a/.b", "a/-b"):
        machine.refuse(f"org/parts@{revision}", "revision")


def test_commit_as_revision(machine, hub, parts, tmp_path):
    machine.take(f"org/parts@{parts.commit}")
    assert not (machine.folder("org/parts") / "refs").exists()
    other = Machine(hub, tmp_path / "other")
    other.refuse("org/parts@" + "f" * 40, "revision", "f" * 40)
