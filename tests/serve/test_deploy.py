"""The files of deploy/ name what the server has."""
import json
import pathlib
import re
import subprocess

DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"


def test_dashboard_and_alerts_name_real_metrics(server):
    server.json("/v1/completions", {"prompt": "Once", "max_tokens": 3})
    _, _, text = server.request("/metrics")
    known = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    expressions = [t["expr"] for p in json.loads((DEPLOY / "grafana.json").read_text())["panels"]
                   for t in p["targets"]]
    expressions.append((DEPLOY / "alerts.yaml").read_text())
    names = {n for e in expressions for n in re.findall(r"(?:vllm|pagoda):\w+", e)}
    assert len(names) > 10
    assert names <= known, names - known


def test_flags_and_routes_exist(server):
    text = subprocess.run([server.program, "serve", "--help"], capture_output=True, text=True,
                          check=True).stdout
    for name in ("pagoda.service", "Containerfile", "kubernetes.yaml"):
        content = (DEPLOY / name).read_text()
        for flag in re.findall(r"(?<=[ ,\[])--(?:host|port|shutdown-timeout)", content):
            assert flag in text
        for path in re.findall(r"/(?:livez|readyz)\b", content):
            assert server.request(path)[0] == 200
