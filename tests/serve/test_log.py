"""A line for each answer, without what was asked or answered."""
import datetime
import json

TEXT = "/v1/completions"
TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


def test_json_lines(start):
    s = start("--log-format", "json", "--device", "cpu")
    before = datetime.datetime.now(datetime.timezone.utc)
    s.json(TEXT, {"prompt": "A secret word", "max_tokens": 4, "ignore_eos": True},
           headers={"X-Request-Id": "abc", "traceparent": TRACE})
    s.json(TEXT, {"prompt": "x", "temperature": 5})
    s.request("/livez")
    s.stop()
    lines = [json.loads(line) for line in s.lines if line.startswith("{")]
    first, refused, live = lines
    assert (first["status"], first["method"], first["path"]) == (200, "POST", TEXT)
    assert first["request_id"] == "abc"
    assert first["trace_id"] == "0123456789abcdef0123456789abcdef"
    assert first["completion_tokens"] == 4 and first["prompt_tokens"] > 0
    assert 0 < first["first_token_ms"] <= first["ms"]
    time = datetime.datetime.fromisoformat(first["time"].replace("Z", "+00:00"))
    assert abs((time - before).total_seconds()) < 60
    assert refused["status"] == 400 and live["path"] == "/livez"
    assert "secret" not in "".join(s.lines)


def test_text_lines_and_none(start):
    s = start()
    s.json(TEXT, {"prompt": "Another secret", "max_tokens": 2})
    s.stop()
    line = [x for x in s.lines if TEXT in x]
    assert len(line) == 1 and " 200 POST " in line[0] and "\033" not in line[0]
    assert "secret" not in "".join(s.lines)
    quiet = start("--disable-access-log")
    quiet.json(TEXT, {"prompt": "x", "max_tokens": 2})
    quiet.stop()
    assert not [x for x in quiet.lines if TEXT in x]
