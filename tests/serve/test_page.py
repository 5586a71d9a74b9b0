"""The web page in a real browser. Screenshots: PAGODA_SCREENSHOTS, else pytest's own folder."""
import os
import pathlib
import shutil

import pytest

from test_life import LONG, send

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield b
        b.close()


@pytest.fixture
def shots(tmp_path):
    folder = pathlib.Path(os.environ.get("PAGODA_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_page(browser, server, scheme="light", size=(1200, 800)):
    context = browser.new_context(viewport={"width": size[0], "height": size[1]},
                                  color_scheme=scheme)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda e: page.problems.append(str(e)))
    page.on("console", lambda m: page.problems.append(m.text) if m.type == "error" else None)
    page.goto(server.url)
    return page


@pytest.mark.parametrize("scheme,size", [("light", (1200, 800)), ("dark", (390, 780))])
def test_chat_and_engine(browser, server, shots, scheme, size):
    page = open_page(browser, server, scheme, size)
    page.wait_for_selector("#about:has-text('nano')")
    page.fill("#input", "What is the capital of France?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".assistant .figures")
    assert page.inner_text(".assistant .said") == "The capital of France is Paris."
    page.click("#toggle-engine")
    page.wait_for_selector("#figures dd")
    page.screenshot(path=shots / f"engine-{scheme}.png")
    made = page.inner_text("#figures dt:has-text('Tokens made') + dd")
    assert int(made) > 0
    # Nothing sticks out of the window, and the field to write in stays within.
    box = page.locator("#composer").bounding_box()
    assert box["y"] + box["height"] <= size[1] and box["width"] <= size[0]
    page.click("#toggle-engine")
    page.click("#toggle-settings")
    page.screenshot(path=shots / f"settings-{scheme}.png")
    assert page.problems == []


def test_engine_at_work(browser, start, shots):
    """The live view while eight streams run."""
    s = start("--device", "null{step_us=20000}", "--max-num-seqs", "6", "--num-blocks", "500")
    open_ones = [send(s, {**LONG, "prompt": [5] * 100, "stream": True}) for _ in range(8)]
    page = open_page(browser, s)
    page.click("#toggle-engine")
    page.wait_for_selector("#figures dt:has-text('Running') + dd:has-text('6')")
    page.wait_for_timeout(4500)
    figures = {k: page.inner_text(f"#figures dt:text-is('{k}') + dd")
               for k in ("Running", "Waiting", "Tokens a second", "KV blocks")}
    page.screenshot(path=shots / "engine-busy.png")
    assert (figures["Running"], figures["Waiting"]) == ("6", "2")
    assert 20 < int(figures["Tokens a second"]) <= 310  # 6 answers, at most 50 steps a second
    assert 5 < float(figures["KV blocks"].split()[0]) < 30
    painted = page.evaluate("""() => ["blocks", "rate", "timeline", "steps"].map((id) => {
      const c = document.getElementById(id);
      const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
      const a = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
      const want = [1, 3, 5].map((i) => parseInt(a.slice(i, i + 2), 16));
      let n = 0;
      for (let i = 0; i < d.length; i += 4) {
        n += want.every((v, k) => Math.abs(d[i + k] - v) < 40) && d[i + 3] > 100 ? 1 : 0;
      }
      return n;
    })""")
    assert min(painted) > 20, painted  # drawn in the colour of what is going on
    assert page.problems == []
    for one in open_ones:
        one.close()


def test_edit_retry_and_settings(browser, server):
    page = open_page(browser, server)
    page.wait_for_selector("#about:has-text('nano')")
    page.click("#toggle-settings")
    page.fill("#max_tokens", "3")
    page.fill("#temperature", "0")
    page.fill("#input", "Tell me a story.")
    page.keyboard.press("Enter")
    page.wait_for_selector(".assistant .figures:has-text('3 tokens')")
    first = page.inner_text(".assistant .said")
    page.click("text=Retry")
    page.wait_for_selector(".assistant .figures:has-text('3 tokens')")
    assert page.inner_text(".assistant .said") == first
    page.click("text=Edit")
    assert page.input_value("#input") == "Tell me a story."
    assert page.locator("#messages .user").count() == 0


def test_stop(browser, start):
    s = start("--device", "null{step_us=30000}")
    page = open_page(browser, s)
    page.wait_for_selector("#about:has-text('nano')")
    page.fill("#input", "Go on for long.")
    page.keyboard.press("Enter")
    page.wait_for_selector("#stop:visible")
    page.keyboard.press("Escape")
    page.wait_for_selector(".assistant .figures:has-text('stopped')")
    page.wait_for_timeout(300)
    assert s.metric("vllm:num_requests_running") == 0


def test_by_keyboard_alone(browser, server):
    page = open_page(browser, server)
    page.wait_for_selector("#about:has-text('nano')")
    seen = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("() => document.activeElement.id"))
    assert {"toggle-settings", "toggle-engine", "new-chat", "input", "send"} <= seen
    page.focus("#toggle-engine")
    page.keyboard.press("Enter")
    assert page.get_attribute("#toggle-engine", "aria-expanded") == "true"


def test_key_is_asked_for(browser, start):
    s = start("--api-key", "secret")
    page = open_page(browser, s)
    page.wait_for_selector("#about:has-text('API key')")
    page.fill("#key", "secret")
    page.keyboard.press("Enter")
    page.wait_for_selector("#about:has-text('nano')")


def test_policy(server):
    status, headers, text = server.request("/")
    assert status == 200 and "<script>" not in text and "style=" not in text
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert server.request("/page.js")[1]["Content-Type"].startswith("text/javascript")
    assert server.request("/../inner.h")[0] == 404
