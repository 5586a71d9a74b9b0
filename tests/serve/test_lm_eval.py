"""lm-eval itself against the server, by option: PAGODA_LM_EVAL=VENV/bin/lm_eval, from a virtual
environment with `pip install "lm_eval[api]"` (no torch). ci/check has its request patterns only
(test_clients.py).
"""
import json
import os
import pathlib
import subprocess

import pytest

LM_EVAL = os.environ.get("PAGODA_LM_EVAL")
pytestmark = pytest.mark.skipif(not LM_EVAL, reason="PAGODA_LM_EVAL is not set")

# A question, its answer, and the same as text with the right word and with another.
QUESTIONS = [("What is the capital of France?", "The capital of France is", [" Rome.", " Paris."]),
             ("What is 7 + 5?", "7 + 5 =", [" 13", " 12"]),
             ("What is the opposite of hot?", "The opposite of hot is", [" big.", " cold."])]
CHOICE = """task: pagoda_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{start}}}}"
doc_to_choice: ends
doc_to_target: 1
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
CHAT = """task: pagoda_chat
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{start}}}}{{{{ends[1]}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 24, temperature: 0}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture
def evaluate(server, tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"question": q, "start": s, "ends": ends}) + "\n"
                            for q, s, ends in QUESTIONS))
    for name, text in (("choice", CHOICE), ("chat", CHAT)):
        (tmp_path / f"{name}.yaml").write_text(text.format(data=data))

    def run(kind, task, path, *flags):
        """The results of a task."""
        environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1",
                       "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none"}
        more = f"model=nano,base_url={server.url}{path},num_concurrent=2,tokenizer_backend=remote"
        done = subprocess.run(
            [LM_EVAL, "run", "--model", kind, "--model_args", more, "--tasks", task,
             "--include_path", str(tmp_path), "--output_path", str(tmp_path / "out"), *flags],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout.decode()
        report, = pathlib.Path(tmp_path, "out").rglob("results*.json")
        return json.loads(report.read_text())["results"][task]
    return run


def test_loglikelihoods(evaluate):
    """Text completions with echo: the right word is likelier than the other, each time."""
    assert evaluate("local-completions", "pagoda_choice", "/v1/completions")["acc,none"] == 1.0


def test_generation(evaluate):
    """Chat completions: the answers that the default model gives."""
    got = evaluate("local-chat-completions", "pagoda_chat", "/v1/chat/completions",
                   "--apply_chat_template")
    assert got["exact_match,none"] == 1.0
