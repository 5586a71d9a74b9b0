"""A live server for the tests: the built program on a free port of loopback."""
import json
import os
import pathlib
import signal
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

BUILD = pathlib.Path(os.environ.get("PAGODA_BUILD_DIR", "build-gcc")).resolve()
PROGRAM = BUILD / "bin" / "pagoda"


class Server:
    program = str(PROGRAM)

    def __init__(self, *flags, env=None):
        environment = {**os.environ, "PAGODA_PLUGIN_PATH": str(BUILD / "lib" / "pagoda"),
                       **(env or {})}
        self.process = subprocess.Popen([str(PROGRAM), "serve", "--port", "0", *flags],
                                        stderr=subprocess.PIPE, env=environment)
        self.lines = []
        self.url = None
        for raw in self.process.stderr:
            line = raw.decode()
            self.lines.append(line)
            if "://" in line:
                self.url = line.split()[-1].removesuffix("/v1")
                break
        if self.url is None:
            self.process.wait(10)
            raise RuntimeError("".join(self.lines))
        self.port = int(self.url.rsplit(":", 1)[1])
        self.reader = threading.Thread(target=self._read_lines)
        self.reader.start()

    def _read_lines(self):
        for raw in self.process.stderr:
            self.lines.append(raw.decode())

    def request(self, path, body=None, headers=None, method=None, timeout=60):
        """(status, headers, text)"""
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def json(self, path, body=None, **more):
        status, _, text = self.request(path, body, **more)
        return status, json.loads(text)

    def events(self, path, body, timeout=60):
        """The data of each event of a stream, [DONE] left out but asserted."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        found = []
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            text = answer.read().decode()
        assert text.endswith("data: [DONE]\n\n")
        for event in text.removesuffix("data: [DONE]\n\n").split("\n\n"):
            if event and not event.startswith(":"):
                assert event.startswith("data: ") and "\n" not in event
                found.append(json.loads(event[6:]))
        return found

    def metric(self, name):
        _, _, text = self.request("/metrics")
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith(name + "{"))

    def stop(self, signal_number=signal.SIGTERM, timeout=30):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        code = self.process.wait(timeout)
        self.reader.join(timeout)
        self.process.stderr.close()
        return code


@pytest.fixture(scope="session")
def server():
    s = Server("--device", "cpu", "--max-num-seqs", "16")
    yield s
    assert s.stop() == 0


@pytest.fixture
def start():
    """start(*flags): further servers, ended behind the test."""
    all_servers = []

    def make(*flags, **more):
        all_servers.append(Server(*flags, **more))
        return all_servers[-1]

    yield make
    for s in all_servers:
        s.stop()
