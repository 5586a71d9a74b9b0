"""TLS with a certificate made by the test."""
import http.client
import json
import socket
import ssl
import subprocess

import pytest

from test_life import wait_for

TEXT = "/v1/completions"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    return str(cert), str(key)


def ask(port, certificate, body, **more):
    context = ssl.create_default_context(cafile=certificate[0])
    c = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=20)
    c.request("POST", TEXT, json.dumps(body), {"Content-Type": "application/json", **more})
    return c, c.getresponse()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_answers_and_streams(start, certificate):
    s = start("--device", "null", "--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1])
    assert s.url.startswith("https://")
    c, answer = ask(s.port, certificate, {"prompt": "x", "max_tokens": 3, "ignore_eos": True})
    assert answer.status == 200
    assert json.load(answer)["usage"]["completion_tokens"] == 3
    c.request("GET", "/livez")  # the connection is kept
    assert c.getresponse().read() == b"ok\n"
    c, answer = ask(s.port, certificate, {"prompt": "x", "max_tokens": 300, "ignore_eos": True,
                                          "stream": True})
    text = answer.read()
    assert text.endswith(b"data: [DONE]\n\n") and text.count(b"data: {") > 100
    # Old versions and unknown issuers: no.
    with pytest.raises(ssl.SSLError):
        ssl.create_default_context().wrap_socket(
            socket.create_connection(("127.0.0.1", s.port)), server_hostname="localhost")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(socket.create_connection(("127.0.0.1", s.port)))


def test_broken_and_plain_clients(start, certificate):
    s = start("--device", "null{step_us=20000}", "--ssl-certfile", certificate[0], "--ssl-keyfile",
              certificate[1])
    with socket.create_connection(("127.0.0.1", s.port), timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.recv(1000)
    context = ssl.create_default_context(cafile=certificate[0])
    with context.wrap_socket(socket.create_connection(("127.0.0.1", s.port), timeout=10),
                             server_hostname="localhost") as one:
        one.sendall(b"NONSENSE\r\n\r\n")
        assert one.recv(1000).startswith(b"HTTP/1.1 400 ")
    # A client that leaves is seen through TLS too.
    c, answer = ask(s.port, certificate, {"prompt": "x", "max_tokens": 900, "ignore_eos": True,
                                          "stream": True})

    def running():
        again = http.client.HTTPSConnection("127.0.0.1", s.port, context=context, timeout=10)
        again.request("GET", "/metrics")
        text = again.getresponse().read().decode()
        return [line.rsplit(" ", 1)[1] for line in text.splitlines()
                if line.startswith("vllm:num_requests_running{")][0]

    assert wait_for(lambda: running() == "1")
    answer.close()
    c.close()
    assert wait_for(lambda: running() == "0", 5)


def test_wrong_files(start, certificate, tmp_path):
    other = tmp_path / "other.pem"
    other.write_text("nothing")
    for flags in (("--ssl-certfile", certificate[0]),
                  ("--ssl-certfile", str(other), "--ssl-keyfile", certificate[1]),
                  ("--ssl-certfile", certificate[0], "--ssl-keyfile", str(other)),
                  ("--ssl-certfile", "/no/such", "--ssl-keyfile", certificate[1])):
        with pytest.raises(RuntimeError, match="certificate|key|PEM"):
            start("--device", "null", *flags)
