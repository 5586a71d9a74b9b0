"""Models by name against a hub on loopback: what is asked, what lands where, what goes wrong."""

import os
import resource
import signal
import stat

from conftest import NANO, files_of
from hub import Repository

WANTED = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
          "chat_template.jinja", "model.safetensors"}
WEIGHTS = "model.safetensors"


def weights_etag(hub):
    return hub.repos["org/nano"].etag(WEIGHTS)


def incomplete(machine):
    return machine.folder("org/nano") / "blobs" / (weights_etag(machine.hub) + ".incomplete")


def downloads(hub, word=WEIGHTS):
    return hub.requests("storage", "GET", word)


# What lands in the cache --------------------------------------------------------------------------

def test_layout(machine, hub):
    machine.take("org/nano")
    repo = hub.repos["org/nano"]
    root = machine.folder("org/nano")
    assert (root / "refs" / "main").read_text() == repo.commit
    names = {p.name for p in machine.snapshot("org/nano").iterdir()}
    assert names == WANTED  # and nothing that the runtime does not read
    for name in names:
        path = machine.snapshot("org/nano") / name
        assert os.readlink(path) == f"../../blobs/{repo.etag(name)}"
        assert path.read_bytes() == repo.files[name]
    assert {p.name for p in (root / "blobs").iterdir()} == {repo.etag(n) for n in WANTED}
    assert (machine.cache / ".locks" / root.name / (weights_etag(hub) + ".lock")).exists()


def test_second_run_asks_nobody(machine, hub):
    machine.take("org/nano")
    hub.log.clear()
    assert machine.take("org/nano") == ""
    assert hub.log == []


def test_answers_like_the_folder(machine):
    by_name = machine.run("run", "org/nano", "--device", "cpu", "-p", "Once", "-n", 8,
                          "--temperature", 0)
    by_path = machine.run("run", NANO, "--device", "cpu", "-p", "Once", "-n", 8,
                          "--temperature", 0)
    assert by_name[0] == by_path[0] == 0, by_name[2] + by_path[2]
    assert by_name[1] == by_path[1] != ""


def test_shards(machine, hub):
    machine.take("org/parts")
    names = {p.name for p in machine.snapshot("org/parts").iterdir()}
    assert {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"} <= names
    # A shard that is gone is brought again, and only that one.
    (machine.snapshot("org/parts") / "model-00002-of-00002.safetensors").resolve().unlink()
    hub.log.clear()
    machine.take("org/parts")
    assert [r[2] for r in downloads(hub, "")] == ["/org/parts/model-00002-of-00002.safetensors"
                                                 "?signed=1"]


def test_revisions(machine, hub):
    repo = hub.repos["org/nano"]
    for name in ("v1.0", "pr/1"):
        machine.take(f"org/nano@{name}")
        assert (machine.folder("org/nano") / "refs" / name).read_text() == repo.commit
    assert hub.requests("hub", "GET", "/revision/pr%2F1")
    assert len(downloads(hub)) == 1  # one commit, one set of blobs
    hub.log.clear()
    machine.take(f"org/nano@{repo.commit}")
    assert hub.log == []
    machine.refuse("org/nano@v2", "org/nano", "v2", "revision")


def test_environment(machine, hub, tmp_path):
    for key, value, cache in (
            ("HF_HUB_CACHE", tmp_path / "a", tmp_path / "a"),
            ("HF_HOME", tmp_path / "b", tmp_path / "b" / "hub"),
            ("XDG_CACHE_HOME", tmp_path / "c", tmp_path / "c" / "huggingface" / "hub"),
            ("HOME", tmp_path / "d", tmp_path / "d" / ".cache" / "huggingface" / "hub")):
        machine.env.pop("HF_HOME", None)
        machine.take("org/nano", env={key: str(value)})
        assert (cache / "models--org--nano" / "refs" / "main").exists(), key


def test_progress_in_a_log(machine):
    err = machine.take("org/nano")
    lines = err.splitlines()
    assert lines[0].startswith("downloading org/nano: 6.4 MB"), err
    assert lines[-1] == "downloading org/nano: 6.4 MB of 6.4 MB", err
    assert "\r" not in err and "\033" not in err


# Tokens and redirects -----------------------------------------------------------------------------

def authorizations(hub, server):
    return {r[3].get("Authorization") for r in hub.requests(server)}


def test_token_goes_to_the_hub_alone(machine, hub):
    hub.repos["org/nano"].token = "hf_secret"
    machine.refuse("org/nano", "org/nano", "private", "HF_TOKEN")
    hub.log.clear()
    machine.take("org/nano", env={"HF_TOKEN": "hf_secret"})
    assert authorizations(hub, "hub") == {"Bearer hf_secret"}
    assert authorizations(hub, "storage") == {None}


def test_token_of_a_file(machine, hub):
    hub.repos["org/nano"].token = "hf_file"
    (machine.home / "token").write_text("hf_file\n")
    machine.take("org/nano")
    assert authorizations(hub, "storage") == {None}
    other = machine.home / "elsewhere"
    other.write_text("hf_other")
    hub.repos["org/nano"].token = "hf_other"
    machine.take("org/nano", env={"HF_TOKEN_PATH": str(other),
                                  "HF_HUB_CACHE": str(machine.home / "x")})


def test_token_is_checked(machine):
    machine.refuse("org/nano", "token", env={"HF_TOKEN": "a\r\nX-Evil: 1"})


def test_token_is_not_shown(machine, hub):
    hub.status = 500
    err = machine.refuse("org/nano", "500", env={"HF_TOKEN": "hf_secret"})
    assert "hf_secret" not in err


def test_moved_repository(machine, hub):
    hub.moved["old/name"] = "org/nano"
    machine.take("old/name", env={"HF_TOKEN": "hf_secret"})
    assert authorizations(hub, "storage") == {None}


def test_redirects_end(machine, hub):
    hub.redirect = hub.url + "/org/nano/resolve/main/" + WEIGHTS
    machine.refuse("org/nano", "redirects")


def test_redirect_to_another_scheme(machine, hub, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x" * 100)
    hub.redirect = f"file://{secret}"
    machine.refuse("org/nano", "rotocol")


# Refusals -----------------------------------------------------------------------------------------

def test_unknown_repository(machine, hub):
    machine.refuse("org/none", "org/none", hub.url, "no such repository")
    assert not machine.folder("org/none").exists()


def test_gated(machine, hub):
    hub.repos["org/nano"].gated = True
    hub.repos["org/nano"].token = "hf_let_in"
    machine.refuse("org/nano", "gated", hub.url, "HF_TOKEN")
    machine.refuse("org/nano", "gated", "no access", env={"HF_TOKEN": "hf_other"})
    machine.take("org/nano", env={"HF_TOKEN": "hf_let_in"})


def test_no_connection(machine):
    machine.env["HF_ENDPOINT"] = "http://127.0.0.1:1"
    machine.refuse("org/nano", "http://127.0.0.1:1")


def test_server_errors(machine, hub):
    hub.status = 503
    machine.refuse("org/nano", "503")


def test_names(machine):
    for name in ("org/na me", "org/..", "../org", "org/.hidden", "org/a--b",
                 "org/name/more", "org/"):
        machine.refuse(name, "no such folder")
    for revision in ("", "../main", "a/../b", "a//b", "/a", "a b", "-x", ".x", "a/"):
        machine.refuse(f"org/nano@{revision}", "revision")


def test_wrong_endpoint(machine):
    machine.refuse("org/nano", "HF_ENDPOINT", "ftp://x", env={"HF_ENDPOINT": "ftp://x"})


def test_other_formats(machine, hub):
    repo = hub.repos["org/old"] = Repository({"config.json": b"{}", "pytorch_model.bin": b"x"})
    machine.refuse("org/old", "model.safetensors", "pytorch_model.bin")
    repo.files["model.gguf"] = b"x"
    assert downloads(hub, "") == []


def test_names_in_answers_stay_in_the_folder(machine, hub, tmp_path):
    evil = dict(hub.repos["org/parts"].files)
    evil["model.safetensors.index.json"] = b'{"weight_map": {"a": "../../../../evil.safetensors"}}'
    hub.repos["org/bad"] = Repository(evil)
    machine.refuse("org/bad", "evil.safetensors")
    hub.lies[WEIGHTS] = "../../../evil"
    machine.refuse("org/nano", "etag")
    hub.lies.clear()
    hub.lies["sha"] = "../../../../evil"
    machine.refuse("org/nano", "no description")
    assert not list(tmp_path.rglob("*evil*"))
    assert not list(tmp_path.parent.glob("evil*"))


# Torn, wrong and full -----------------------------------------------------------------------------

def test_torn_connection_goes_on(machine, hub):
    hub.tears = [1000000, 2000000, 65536]
    machine.take("org/nano")
    ranges = [r[3].get("Range") for r in downloads(hub)]
    assert ranges == [None, "bytes=1000000-", "bytes=3000000-", "bytes=3065536-"]
    assert (machine.snapshot("org/nano") / WEIGHTS).read_bytes() == \
        hub.repos["org/nano"].files[WEIGHTS]


def test_torn_for_good_resumes_in_the_next_run(machine, hub):
    hub.tears = [1500000] + [0] * 10
    err = machine.refuse("org/nano", WEIGHTS, "1500000 of 6367672 bytes are kept")
    assert "next run" in err
    assert incomplete(machine).stat().st_size == 1500000
    assert not (machine.folder("org/nano") / "refs" / "main").exists()
    hub.tears = []
    hub.log.clear()
    machine.take("org/nano")
    assert [r[3].get("Range") for r in downloads(hub)] == ["bytes=1500000-"]
    assert not incomplete(machine).exists()


def test_killed_and_resumed(machine, hub):
    hub.pause = 0.02
    process = machine.start("inspect", "org/nano")
    for _ in range(400):
        if incomplete(machine).exists() and incomplete(machine).stat().st_size > 100000:
            break
        hub.slow.wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    size = incomplete(machine).stat().st_size
    assert 100000 < size < len(hub.repos["org/nano"].files[WEIGHTS])
    hub.pause = 0
    hub.log.clear()
    machine.take("org/nano")
    assert [r[3].get("Range") for r in downloads(hub)] == [f"bytes={size}-"]


def test_storage_without_ranges(machine, hub):
    hub.ranges = False
    hub.tears = [1000000]
    machine.take("org/nano")
    assert len(downloads(hub)) == 2


def test_sizes_that_are_not_said(machine, hub):
    hub.no_sizes = True
    machine.take("org/nano")
    for name in WANTED:
        assert (machine.snapshot("org/nano") / name).read_bytes() == \
            hub.repos["org/nano"].files[name]
    hub.lies["config.json"] = "0" * 40
    machine.refuse("org/nano", "checksum", env={"HF_HUB_CACHE": str(machine.home / "other")})


def test_stalled_connection(machine, hub):
    hub.stall = True
    hub.tears = [100000]
    machine.take("org/nano")
    assert [r[3].get("Range") for r in downloads(hub)] == [None, "bytes=100000-"]


def test_wrong_checksum(machine, hub):
    hub.corrupt = WEIGHTS
    machine.refuse("org/nano", WEIGHTS, "checksum", weights_etag(hub), "thrown away")
    assert not incomplete(machine).exists()
    assert not (machine.snapshot("org/nano") / WEIGHTS).exists()
    hub.corrupt = None
    machine.take("org/nano")


def test_wrong_checksum_of_a_small_file(machine, hub):
    hub.lies["config.json"] = "0" * 40
    machine.refuse("org/nano", "config.json", "checksum", "0" * 40)


def test_damaged_part(machine, hub):
    """A part of another file is found out by the checksum, and the next run begins anew."""
    incomplete(machine).parent.mkdir(parents=True)
    incomplete(machine).write_bytes(b"?" * 1000)
    machine.refuse("org/nano", "checksum")
    machine.take("org/nano")
    incomplete(machine).write_bytes(b"?" * 7000000)  # longer than the file
    (machine.snapshot("org/nano") / WEIGHTS).resolve().unlink()
    machine.take("org/nano")


def test_more_than_announced(machine, hub):
    hub.lies["size"] = 1000
    machine.refuse("org/nano", WEIGHTS, "more than the 1000 bytes")


def test_too_large_for_the_disk(machine, hub):
    hub.lies["size"] = 1 << 60
    machine.refuse("org/nano", str(machine.cache), "are free", "to be downloaded")
    assert downloads(hub) == []


def test_full_disk(machine, hub):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    machine.refuse("org/nano", ".incomplete", "cannot be written", preexec_fn=limit)
    assert len(downloads(hub)) == 1  # asked once: more of it would not fit either
    machine.take("org/nano")
    assert [r[3].get("Range") for r in downloads(hub)][-1] == "bytes=1048576-"


def test_cache_not_writable(machine):
    if os.geteuid() == 0:
        machine.cache.write_text("a file in the place of the folder")
    else:
        machine.cache.mkdir()
        machine.cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    machine.refuse("org/nano", str(machine.cache), "cannot be made")


# Several at once ----------------------------------------------------------------------------------

def test_processes_share_a_download(machine, hub):
    hub.pause = 0.005
    processes = [machine.start("inspect", "org/nano", "--json") for _ in range(4)]
    results = [p.communicate(timeout=60) for p in processes]
    assert [p.returncode for p in processes] == [0] * 4, results
    assert len(downloads(hub)) == 1
    assert len(hub.requests("hub", "GET", "/resolve/" + hub.repos["org/nano"].commit +
                            "/config.json")) == 1
    assert any("waiting for another download" in err for _, err in results)


# Offline ------------------------------------------------------------------------------------------

def test_offline(machine, hub):
    for key, value in (("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_OFFLINE", "yes"),
                       ("HF_HUB_OFFLINE", "TRUE")):
        machine.refuse("org/nano", "not in the cache", str(machine.cache), env={key: value})
    assert hub.log == []
    machine.take("org/nano")
    hub.log.clear()
    machine.take("org/nano", env={"HF_HUB_OFFLINE": "1"})
    (machine.snapshot("org/nano") / WEIGHTS).unlink()
    machine.refuse("org/nano", WEIGHTS, "not in the cache", env={"HF_HUB_OFFLINE": "1"})
    assert hub.log == []


def test_repository_without_tokenizer(machine, hub):
    files = {n: d for n, d in files_of(NANO).items() if not n.startswith("tokenizer")}
    hub.repos["org/bare"] = Repository(files)
    machine.take("org/bare")
    hub.log.clear()
    machine.take("org/bare")  # known to have none: not asked again
    assert hub.log == []


def test_missing_tokenizer_is_fetched_or_done_without(machine, hub):
    machine.take("org/nano")
    (machine.snapshot("org/nano") / "tokenizer.json").unlink()
    machine.take("org/nano", env={"HF_HUB_OFFLINE": "1"})
    endpoint = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    assert "taking what is in the cache" in machine.take("org/nano", env=endpoint)
    machine.take("org/nano")
    assert (machine.snapshot("org/nano") / "tokenizer.json").exists()


def test_a_folder_goes_before_a_name(machine, hub, tmp_path):
    folder = tmp_path / "here" / "org" / "nano"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(NANO)
    status, out, err = machine.run("inspect", "org/nano", cwd=tmp_path / "here")
    assert status == 0, err
    assert hub.log == []
