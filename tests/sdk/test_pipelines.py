"""The pipelines of deploy/ci do what they say: their commands are run, in order, in a vendor's folder
that has the bundle, a plugin and a matrix; twice, so that the second run compares with the first.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["PAGODA_BUILD_DIR"])
LEVEL = "--level 3 --soak 30s"
MATRIX = """
devices:
  - {device: "acme:0", plugin: build/libpgd-acme.so, level: 0}
  - {device: "elsewhere:0", plugin: build/libpgd-elsewhere.so}
models: [qwen3-window]
checks: [level, tokens, nmse]
tokens: 8
"""


def github():
    steps = yaml.safe_load((ROOT / "deploy/ci/github-actions.yml").read_text())["jobs"]["conform"][
        "steps"]
    return [step["run"] for step in steps if "run" in step]


def gitlab():
    job = yaml.safe_load((ROOT / "deploy/ci/gitlab-ci.yml").read_text())["conform"]
    install, *before = job["before_script"]
    assert install.startswith("apt-get")
    return ["\n".join([*before, *job["script"]])]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    out = tmp_path_factory.mktemp("bundle")
    subprocess.run(["cmake", f"-DBUILD={BUILD}", f"-DOUT={out}", "-DNAME=pagoda-test", "-P",
                    ROOT / "cmake/bundle.cmake"], check=True, capture_output=True)
    return out / "pagoda-test"


@pytest.fixture
def project(bundle, tmp_path):
    """The naive plugin under a vendor's name, and a matrix."""
    for path in (bundle / "share/pagoda-sdk/naive").iterdir():
        name = path.name.replace("naive", "acme")
        (tmp_path / name).write_text(path.read_text().replace("naive", "acme"))
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    return tmp_path


def run(commands, folder, bundle):
    """Each as a step of a pipeline, from a fresh checkout; stops at the first that fails."""
    for name in ("pagoda", "build"):
        shutil.rmtree(folder / name, ignore_errors=True)
    env = {"PATH": os.environ["PATH"], "PAGODA_BUNDLE": f"file://{bundle}.tar.gz",
           "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "CI_COMMIT_BRANCH": "main",
           "CI_DEFAULT_BRANCH": "main"}
    told = ""
    for command in commands:
        assert "${{" not in command
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", command.replace(LEVEL, "--level 0")],
                              cwd=folder, env=env, capture_output=True, text=True)
        told += done.stdout + done.stderr
        if done.returncode != 0:
            return done.returncode, told
    return 0, told


@pytest.mark.parametrize("commands", [github, gitlab])
def test_pipeline(commands, project, bundle):
    assert any(LEVEL in command for command in commands())
    status, told = run(commands(), project, bundle)
    assert status == 0, told
    assert "level 0 reached" in told and "verdict: passed (3 passed, 0 failed, 3 skipped)" in told
    for name in ("conform.xml", "conform.md", "report.json", "saved.json"):
        assert (project / name).stat().st_size > 0, name
    status, told = run(commands(), project, bundle)
    assert status == 0, told
    assert "verdict: as before or better" in told
    saved = json.loads((project / "saved.json").read_text())
    for cell in saved["matrix"]:
        cell["tokens"] = "0" * 16
    (project / "saved.json").write_text(json.dumps(saved))
    status, told = run(commands(), project, bundle)
    assert status == 1 and "verdict: worse than before" in told, told
