"""500 connections for PAGODA_SOAK_SECONDS (default 60): whole answers and streams, clients that
come and go, that read slowly, that leave in the midst. Memory and descriptors must stay flat.
"""
import asyncio
import json
import os
import random
import time

SECONDS = float(os.environ.get("PAGODA_SOAK_SECONDS", "60"))
CONNECTIONS = 500
GROWTH_KIB = 12 * 1024


def request_bytes(body, close=False):
    data = json.dumps(body).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
            (b"Connection: close\r\n" if close else b"", len(data)) + data)


class Load:
    def __init__(self, port, end):
        self.port, self.end, self.answers, self.wrong = port, end, 0, []

    def going(self):
        return time.monotonic() < self.end

    async def read_answer(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            self.wrong.append(head)
            return
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        json.loads(await reader.readexactly(length))
        self.answers += 1

    async def keeper(self, rng):
        """One connection, many requests, pauses between them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while self.going():
            writer.write(request_bytes({"prompt": "x" * rng.randint(1, 200), "max_tokens": 4}))
            await self.read_answer(reader)
            await asyncio.sleep(rng.uniform(0.5, 2))
        writer.close()

    async def churner(self, rng):
        """A connection for each request."""
        while self.going():
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(request_bytes({"prompt": "y", "max_tokens": 2}, close=True))
            await self.read_answer(reader)
            writer.close()
            await asyncio.sleep(rng.uniform(0.3, 1))

    async def streamer(self, rng, pause):
        while self.going():
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(request_bytes({"prompt": "z", "max_tokens": 60, "ignore_eos": True,
                                        "stream": True}, close=True))
            got = b""
            while piece := await reader.read(300 if pause else 65536):
                got += piece
                await asyncio.sleep(pause)
            if got.count(b"[DONE]") != 1:
                self.wrong.append(got[-300:])
            self.answers += 1
            writer.close()
            await asyncio.sleep(rng.uniform(0.1, 1))

    async def leaver(self, rng):
        """Gone before the answer: at once, amid the request, amid a stream."""
        while self.going():
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            data = request_bytes({"prompt": "w", "max_tokens": 900, "ignore_eos": True,
                                  "stream": rng.random() < 0.5})
            writer.write(data[:rng.randint(0, len(data) * 2)])
            if rng.random() < 0.5:
                try:
                    await asyncio.wait_for(reader.read(1000), rng.uniform(0.05, 0.5))
                except asyncio.TimeoutError:
                    pass
            writer.transport.abort()
            await asyncio.sleep(rng.uniform(0.3, 1))

    async def run(self):
        kinds = [self.keeper, self.keeper, self.keeper, self.keeper, self.churner,
                 lambda r: self.streamer(r, 0), lambda r: self.streamer(r, 0),
                 lambda r: self.streamer(r, 0.05), self.leaver, self.leaver]
        tasks = []
        for i in range(CONNECTIONS):
            tasks.append(asyncio.ensure_future(kinds[i % len(kinds)](random.Random(i))))
            await asyncio.sleep(0.002)
        await asyncio.gather(*tasks)


def look(pid):
    """(KiB resident, descriptors)"""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        resident = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    return resident, len(os.listdir(f"/proc/{pid}/fd"))


def test_soak(start):
    s = start("--device", "null{step_us=2000}", "--max-num-seqs", "256", "--disable-access-log",
              "--max-num-queued-reqs", "2000")
    pid = s.process.pid
    before = look(pid)
    answers, resident = 0, []
    parts = 4
    for _ in range(parts):  # the same load again and again: only the first may make it grow
        load = Load(s.port, time.monotonic() + SECONDS / parts)
        asyncio.run(asyncio.wait_for(load.run(), SECONDS / parts + 60))
        assert not load.wrong, load.wrong[0]
        answers += load.answers
        deadline = time.monotonic() + 10
        while look(pid)[1] > before[1] and time.monotonic() < deadline:
            time.sleep(0.05)
        resident.append(look(pid)[0])
        assert look(pid)[1] <= before[1]
        assert s.metric("vllm:num_requests_running") == 0
        assert s.metric("vllm:kv_cache_usage_perc") == 0
    assert answers > 5 * SECONDS
    assert resident[-1] - resident[0] < GROWTH_KIB, resident
    assert s.metric("pagoda:open_connections") == 1
    assert s.json("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
