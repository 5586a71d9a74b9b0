"""Classes of weaknesses that servers of this kind had, each by the name it is known by. Others
stand where their subject is: see the table in README.md.
"""
import json
import pathlib
import re
import shutil
import socket
import threading
import time

import pytest

from test_life import LONG, SLOW, send, wait_for
from test_refusals import CHAT, TEXT, check_error

NANO = pathlib.Path(__file__).parents[2] / "models" / "nano"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def model_with(tmp_path):
    """model_with(template): the folder of a model that has it."""
    def make(template):
        folder = tmp_path / "model"
        shutil.copytree(NANO, folder)
        for name in ("chat_template.jinja", "tokenizer_config.json"):
            file = folder / name
            if file.exists() and name.endswith(".json"):
                config = json.loads(file.read_text())
                config.pop("chat_template", None)
                file.write_text(json.dumps(config))
        (folder / "chat_template.jinja").write_text(template)
        return str(folder)

    return make


def test_cve_2025_62426_tokenize_holds_no_loop(start):
    """CVE-2025-62426, CVE-2025-61620: what a text worker does keeps nobody else waiting."""
    s = start("--device", "null")
    body = json.dumps({"prompt": "some words of a text " * 300_000}).encode()
    done = []
    thread = threading.Thread(target=lambda: done.append(s.request("/tokenize", body)[0]))
    begin = time.monotonic()
    thread.start()
    worst = 0
    while not done:
        asked = time.monotonic()
        assert s.request("/livez")[0] == 200
        worst = max(worst, time.monotonic() - asked)
    thread.join()
    took = time.monotonic() - begin
    assert done == [200] and took > 0.3
    assert worst < took / 2


def test_cve_2025_61620_template_variables(server, start, model_with):
    """chat_template_kwargs sets no template and none of what the server tells it; endless templates
    end by their budget, and the server goes on."""
    for name in ("chat_template", "tokenize", "messages", "tools", "bos_token"):
        for path in (CHAT, "/tokenize"):
            check_error(*server.json(path, {"messages": MESSAGES,
                                            "chat_template_kwargs": {name: "x"}}),
                        400, "chat_template_kwargs")
    check_error(*server.json(CHAT, {"messages": MESSAGES, "chat_template": "{{ 7 * 7 }}"}), 400,
                "chat_template")
    s = start(model_with("{% for a in range(n) %}{% for b in range(n) %}{{ a * b }}{% endfor %}"
                         "{% endfor %}"), "--device", "null", "--strict-fields")
    body = {"messages": MESSAGES, "max_tokens": 1, "chat_template_kwargs": {"n": 99999}}
    check_error(*s.json(CHAT, body), 400, "messages")
    body["chat_template_kwargs"]["n"] = 2
    assert s.json(CHAT, body)[0] == 200


def test_cve_2024_34359_template_runs_no_code(start, model_with):
    """CVE-2024-34359, CVE-2019-10906, CVE-2024-56201, CVE-2024-56326, CVE-2025-27516: templates see
    no object of the host."""
    for template in ("{{ ''.__class__.__mro__[1].__subclasses__() }}",
                     "{{ '{0.__class__}'.format(messages) }}",
                     "{{ messages|attr('__class__') }}",
                     "{{ cycler.__init__.__globals__.os.popen('id').read() }}"):
        folder = pathlib.Path(model_with(template))
        try:
            s = start(str(folder), "--device", "null")
        except RuntimeError:
            pass  # refused when it is read
        else:
            status, a = s.json("/tokenize", {"messages": MESSAGES})
            if status == 200:
                text = s.json("/detokenize", {"tokens": a["tokens"]})[1]["prompt"]
                assert not re.search(r"<class|uid=|object at", text), text
        shutil.rmtree(folder)


def test_cve_2025_48944_tools_and_formats(server):
    """CVE-2025-48942, -48943, -48944, -48887: schemas and patterns of callers."""
    wrong = {"type": "object", "properties": {"a": {"type": "something", "pattern": "(a+)+$"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": wrong}}]
    assert server.json(CHAT, {"messages": MESSAGES, "tools": tools, "max_tokens": 2})[0] == 200
    for body in ({"guided_regex": "("}, {"guided_json": wrong},
                 {"structured_outputs": {"regex": "("}},
                 {"response_format": {"type": "json_schema", "json_schema": {"schema": wrong}}}):
        check_error(*server.json(CHAT, {"messages": MESSAGES, **body}), 400)
    assert server.json(CHAT, {"messages": MESSAGES, "max_tokens": 1})[0] == 200


def test_cve_2026_21869_ranges(server):
    """Negative and huge numbers in every field of integers."""
    fields = server.json("/openapi.json")[1]["components"]["schemas"]["Completion"]["properties"]
    integers = [n for n, f in fields.items() if "integer" in f.get("type", [])]
    assert len(integers) > 7
    for name in integers:
        for value in (-2**63 - 1, -2**31 - 1, 2**31, 2**63, 2**64, 1e300, -1e300):
            status, a = server.json(TEXT, {"prompt": "x", "max_tokens": 1, name: value})
            if name != "seed" or abs(value) > 2**63 + 1:
                check_error(status, a, 400, name)


def test_cve_2024_28224_names_like_loopback(server):
    """A name that begins like an address of loopback belongs to somebody else."""
    for host in ("127.0.0.1.evil.example", "127.evil.example", "localhost.evil.example",
                 "127.0.0.1.nip.io:8000", "0.0.0.0", "evil.example:127"):
        check_error(*server.json("/v1/models", headers={"Host": host}), 403)


def test_requests_of_another_site(start, server):
    """A page of another site can send a POST without a preflight; it must start nothing here."""
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "evil"):
        for path in (TEXT, CHAT, "/tokenize"):
            check_error(*server.json(path, body, headers={"Origin": origin}), 403)
    assert server.json(TEXT, body, headers={"Origin": server.url})[0] == 200
    s = start("--device", "null", "--allowed-origin", "http://page.example")
    assert s.json(TEXT, body, headers={"Origin": "http://page.example"})[0] == 200


def test_ghsa_94f4_paths_do_not_open_doors(start):
    """Keys are asked for whatever the path looks like (GHSA-94f4-hr76-p5j6)."""
    s = start("--device", "null", "--api-key", "secret")
    for path in ("/v1/models/", "/V1/models", "/./v1/models", "/livez/../v1/models",
                 "/readyz/", "/%6divez", "/livez%2f..%2fmetrics", "/v1/models?x=/livez",
                 "/metrics?", "/load;/livez", "/icon.svg/../metrics"):
        with socket.create_connection(("127.0.0.1", s.port), timeout=10) as one:
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                        .encode())
            got = b""
            while piece := one.recv(65536):
                got += piece
        assert got.startswith(b"HTTP/1.1 401 "), (path, got[:100])


def test_cve_2025_6242_nothing_is_fetched(server):
    """CVE-2025-6242, CVE-2026-24779, CVE-2025-62372: no image, no address, no embeddings."""
    with socket.create_server(("127.0.0.1", 0)) as bait:
        bait.settimeout(0.3)
        url = f"http://127.0.0.1:{bait.getsockname()[1]}/x.png"
        for part in ({"type": "image_url", "image_url": {"url": url}},
                     {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
                     {"type": "video_url", "video_url": {"url": url}},
                     {"type": "file", "file": {"file_data": "file:///etc/passwd"}}):
            check_error(*server.json(CHAT, {"messages": [{"role": "user", "content": [part]}]}),
                        400, "messages")
        check_error(*server.json(TEXT, {"prompt": {"prompt_embeds": "gASV"}}), 400, "prompt")
        with pytest.raises(TimeoutError):
            bait.accept()


def test_cve_2026_22778_no_address_in_errors(server):
    """No pointer, path or line of the program in what a caller gets."""
    for path, body in ((TEXT, b"{"), (TEXT, b"\xff"), (CHAT, {"messages": [{"role": "x"}]}),
                       (TEXT, {"prompt": [2**40]}), ("/detokenize", {"tokens": [10**9]}),
                       ("/tokenize", b""), ("/nope", None)):
        text = server.request(path, body)[2]
        assert not re.search(r"0x[0-9a-f]{4,}|/home/|/runtime/|\.c:\d", text), text


@pytest.mark.parametrize("stream", [False, True])
def test_half_closed_client_is_gone(start, stream):
    """Who closes only his sending side counts as gone, as behind nginx or uvicorn."""
    s = start(*SLOW)
    one = send(s, {**LONG, "stream": stream})
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 1)
    one.shutdown(socket.SHUT_WR)
    assert wait_for(lambda: s.metric("vllm:num_requests_running") == 0, 2)
    assert s.metric("pagoda:clients_left_total") == 1
    one.close()
