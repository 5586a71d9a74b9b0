"""Running streams beside long prompts: --max-stall-ms."""
import http.client
import json
import threading
import time

TEXT = "/v1/completions"
# A step takes 4 ms and 0.02 ms for each row: 8192 rows are 168 ms, 2048 rows 45 ms.
TIMED = ("synthetic:llama-3.2-1b", "--device", "null{step_us=4000;token_us=20;memory=64GiB}",
         "--max-num-seqs", "64", "--max-num-batched-tokens", "8192", "--max-model-len", "9000",
         "--disable-access-log")
STREAMS = 30


def follow(server, times, seed, tokens):
    """Arrival times of a stream's events."""
    body = json.dumps({"prompt": [seed] * 8, "max_tokens": tokens, "ignore_eos": True,
                       "stream": True, "return_token_ids": True})
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    c.request("POST", TEXT, body, {"Content-Type": "application/json"})
    answer = c.getresponse()
    assert answer.status == 200
    while line := answer.readline():
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    c.close()


def gaps_beside_prompts(server, tokens=150, prompts=4):
    """Sorted gaps of 30 streams, and the steps they ran in, beside prompts of 8192 tokens."""
    all_times = [[] for _ in range(STREAMS)]
    threads = [threading.Thread(target=follow, args=(server, times, 100 + i, tokens))
               for i, times in enumerate(all_times)]
    for t in threads:
        t.start()
    while min(len(times) for times in all_times) < 10:
        time.sleep(0.01)
    for i in range(prompts):
        status, a = server.json(TEXT, {"prompt": [200 + i] * 8192, "max_tokens": 1})
        assert status == 200 and a["usage"]["prompt_tokens"] == 8192
    for t in threads:
        t.join()
    assert all(len(times) == tokens for times in all_times)
    return sorted(b - a for times in all_times for a, b in zip(times[5:], times[6:]))


def p99(gaps):
    return gaps[int(len(gaps) * 0.99)]


def test_streams_beside_long_prompts(start):
    """p99 of the gaps of 30 streams stays under the bound and 10 %; prompts still go on.

    A neighbour that holds the processor for long misses it for us: one try of three must do.
    """
    bound = 0.040
    for left in (2, 1, 0):
        s = start(*TIMED, "--max-stall-ms", str(int(bound * 1000)))
        gaps = gaps_beside_prompts(s)
        assert s.metric("pagoda:stall_bound_seconds") == bound
        assert s.metric("pagoda:limited_steps_total") >= 4 * 8192 // 2048
        assert 16 <= s.metric("pagoda:prefill_limit_tokens") <= (bound - 0.004) / 20e-6
        worst = s.metric("pagoda:max_stall_seconds")
        if not left or (p99(gaps) < bound * 1.1 and worst < bound * 1.1):
            break
    assert p99(gaps) < bound * 1.1
    assert 0 < worst < bound * 1.1


def test_without_a_bound_they_wait(start):
    """The other way round: the same load without the flag does stall, so the test above can."""
    s = start(*TIMED)
    gaps = gaps_beside_prompts(s, prompts=12, tokens=60)
    assert gaps[-1] > 0.15
    assert s.metric("pagoda:max_stall_seconds") > 0.15
    assert s.metric("pagoda:prefill_limit_tokens") == 0


def test_bound_needs_chunks(start):
    try:
        start("--device", "null", "--max-stall-ms", "40", "--enable-chunked-prefill", "false",
              "--max-model-len", "512")
    except RuntimeError as error:
        assert "max-stall-ms" in str(error)
    else:
        raise AssertionError("it was taken")
