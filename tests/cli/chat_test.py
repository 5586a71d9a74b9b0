"""pagoda chat on a pseudo-terminal and without one.

    chat_test.py PAGODA SOURCE_DIR PLUGIN_DIR
"""

import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PAGODA, SOURCE, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
NANO = SOURCE / "models" / "nano"
CTRL_C, CTRL_D = b"\x03", b"\x04"
GREEDY = ["--device", "cpu", "--temperature", "0"]
SLOW = ["--device", "null{step_us=30000}", "--ignore-eos", "-n", "400"]


def environment(**more):
    keep = ("PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
    env = {k: os.environ[k] for k in keep if k in os.environ}
    return {**env, "PAGODA_PLUGIN_PATH": PLUGINS, "TERM": "dumb", **more}


def chat(*args, stdin="", model=NANO, **env):
    done = subprocess.run([PAGODA, "chat", str(model), *args], input=stdin.encode(),
                          capture_output=True, env=environment(**env), timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Terminal:
    """The program on a pseudo-terminal; everything it shows is kept."""

    def __init__(self, *args, model=NANO, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(PAGODA, [PAGODA, "chat", str(model), *args], environment(**env))
        self.shown = ""
        self.status = None

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        try:
            data = os.read(self.fd, 65536) if ready else b""
        except OSError:  # the other side has ended
            return False
        self.shown += data.decode(errors="replace")
        return bool(data) or not ready

    def until(self, word, seconds=60):
        """Waits until the word is shown; gives what was shown up to its end, and forgets it."""
        end = time.monotonic() + seconds
        while word not in self.shown:
            if time.monotonic() > end or not self.read(0.2) and word not in self.shown:
                raise AssertionError(f"{word!r} is not in {self.shown!r}")
        at = self.shown.index(word) + len(word)
        before, self.shown = self.shown[:at], self.shown[at:]
        return before

    def type(self, data):
        os.write(self.fd, data if isinstance(data, bytes) else data.encode())

    def finish(self, seconds=30):
        """Waits for the end of the program; its exit status."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read(0):
                    if not select.select([self.fd], [], [], 0)[0]:
                        break
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
            self.read(0.05)
        raise AssertionError(f"the program does not end: {self.shown!r}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class OnATerminal(unittest.TestCase):
    def test_conversation(self):
        with Terminal(*GREEDY, NO_COLOR="1") as t:
            greeting = t.until("> ")
            for word in ("nano", "cpu:0", "/help", "Ctrl-C", "Ctrl-D"):
                self.assertIn(word, greeting)
            t.type("What is 7 + 5?\r")
            self.assertIn("7 + 5 = 12", t.until("> "))
            t.type("What is the capital of France?\r")
            answer = t.until("> ")
            self.assertIn("Paris", answer)
            self.assertIn("of it cached", answer)
            t.type(CTRL_D)
            self.assertEqual(t.finish(), 0)
            self.assertNotIn("\033[", greeting.replace("\033[K", "") + answer)

    def test_colours(self):
        with Terminal(*GREEDY, TERM="xterm") as t:
            self.assertIn("\033[2m", t.until("\033[1;32m>\033[0m "))
            t.type("/exit\r")
            self.assertEqual(t.finish(), 0)
        for env in ({"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}):
            with Terminal(*GREEDY, **env) as t:
                t.until("> ")
                t.type("/help\r")
                shown = t.until("Ctrl-C")
                t.type("/exit\r")
                self.assertEqual(t.finish(), 0)
                self.assertIsNone(re.search("\033\\[[0-9;]*m", shown + t.shown))

    def test_interrupt_stops_the_answer(self):
        with Terminal(*SLOW, NO_COLOR="1") as t:
            t.until("> ")
            t.type("go on and on\r")
            t.until("\r\n")  # the echo
            while len(t.shown) < 40:
                self.assertTrue(t.read(5))
            start = time.monotonic()
            t.type(CTRL_C)
            shown = t.until("> ", 10)
            self.assertLess(time.monotonic() - start, 5)  # the whole answer takes 12 s
            self.assertIn("(stopped)", shown)
            # The program goes on, and the part is a part of the conversation.
            t.type("more\r")
            t.until("\r\n")
            while len(t.shown) < 40:
                self.assertTrue(t.read(5))
            t.type(CTRL_C)
            shown = t.until("> ", 10)
            cached = int(shown.split("prompt ")[1].split(", ")[1].split()[0])
            self.assertGreaterEqual(cached, 16)
            t.type("/exit\r")
            self.assertEqual(t.finish(), 0)

    def test_interrupt_of_a_line(self):
        with Terminal(*GREEDY, NO_COLOR="1") as t:
            t.until("> ")
            t.type("half a que")
            t.until("half a que")
            t.type(CTRL_C)
            self.assertIn("Ctrl-D or /exit", t.until("> "))
            t.type('"""three\r')
            t.until(". ")
            t.type("lines")
            t.type(CTRL_C)
            t.until("> ")
            t.type("What is 7 + 5?\r")
            self.assertIn("7 + 5 = 12", t.until("> "))
            t.type(CTRL_D)
            self.assertEqual(t.finish(), 0)

    def test_wrong_use(self):
        with Terminal("--device", "null{step_us=5}", "--no-such-flag") as t:
            self.assertEqual(t.finish(), 2)
            self.assertIn("--no-such-flag", t.shown)

    def test_quiet(self):
        with Terminal(*GREEDY, "-q", NO_COLOR="1") as t:
            self.assertEqual(t.until("> ").split("\033[K")[-1], "> ")  # a bar, and no greeting
            t.type("What is 7 + 5?\r")
            self.assertNotIn("tokens/s", t.until("> "))
            t.type(CTRL_D)
            self.assertEqual(t.finish(), 0)


LEFT, RIGHT, UP, DOWN = "\033[D", "\033[C", "\033[A", "\033[B"
HOME, END, DELETE = "\033[H", "\033OF", "\033[3~"
READY = "\033[K\r\033[2C"  # an empty line, the cursor behind the prompt


class Editing(unittest.TestCase):
    """Lines as they are edited on a terminal that understands escape sequences."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name, "saved")

    def tearDown(self):
        self.folder.cleanup()

    def questions(self, *lines):
        """What arrives as the user's messages when these keys are typed."""
        with Terminal("--device", "null", "-n", "1", TERM="xterm", NO_COLOR="1") as t:
            for line in lines:
                t.until(READY)
                t.type(line)
            t.until(READY)
            t.type(f"/save {self.path}\r")
            t.until("messages in")
            t.until(READY)
            t.type(CTRL_D)
            self.assertEqual(t.finish(), 0)
            # The terminal is as it was.
            flags = termios.tcgetattr(t.fd)[3]
            self.assertTrue(flags & termios.ICANON and flags & termios.ECHO)
            self.last = t
        messages = json.loads(self.path.read_text())["messages"]
        return [m["content"] for m in messages if m["role"] == "user"]

    def test_keys(self):
        self.assertEqual(self.questions(
            "abd" + LEFT + "c\r",
            "bcx\x7f" + HOME + "a" + END + "d\r",
            "xxabc" + HOME + DELETE + "\x04\r",
            "abc def" + "\x17" + "x\r",
            "abcdef" + LEFT * 3 + "\x0b\r",
            "abcdef" + LEFT * 3 + "\x15\r",
            "bc\x01a\x05d\x02\x02\x06|\r",
            "a\033[99;5Xb\033[200c" + LEFT * 9 + RIGHT * 9 + "\x7f" * 1 + "c\r"),
            ["abcd", "abcd", "abc", "abc x", "abc", "def", "abc|d", "ac"])

    def test_characters(self):
        self.assertEqual(self.questions(
            "äöü" + LEFT + "\x7f" + "\r", "日本語\x7f\x7f" + "é\r", "😀x" + LEFT * 2 + "y\r"),
            ["äü", "日é", "y😀x"])

    def test_history(self):
        self.assertEqual(self.questions(
            "one\r", "two\r", UP + UP + "!\r", "draft" + UP + DOWN + "ed\r", "\x10" * 9 + "\r",
            DOWN + "end\r"),
            ["one", "two", "one!", "drafted", "one", "end"])

    def test_long_line(self):
        text = "".join(f"{i} " for i in range(3000)).strip()  # longer than a terminal passes on
        self.assertEqual(self.questions(f"/system {text}\r"), [])
        saved = json.loads(self.path.read_text())["messages"]
        self.assertTrue(saved == [{"role": "system", "content": text}], len(str(saved)))

    def test_paste(self):
        paste = "\033[200~def f():\r\treturn 1\n\033[201~"
        self.assertEqual(self.questions("look: " + paste + "ok\r"),
                         ["look: def f():\n\treturn 1\nok"])

    def test_ends(self):
        with Terminal("--device", "null", "-n", "1", TERM="xterm", NO_COLOR="1") as t:
            t.until(READY)
            t.type("thrown away")
            t.until("thrown away")
            t.type(CTRL_C)
            t.until("Ctrl-D or /exit")
            t.until(READY)
            t.type("x" + LEFT)
            t.until("x")
            t.type(CTRL_D)  # deletes the x
            t.until(READY)
            t.type(CTRL_D)  # and ends
            self.assertEqual(t.finish(), 0)


class Orders(unittest.TestCase):
    def test_reset(self):
        status, out, _ = chat(*GREEDY, "--json", stdin="What is 7 + 5?\n/reset\nWhat is 7 + 5?\n")
        self.assertEqual(status, 0)
        first, second = map(json.loads, out.splitlines())
        self.assertEqual(first["content"], second["content"])
        self.assertEqual(first["usage"]["prompt_tokens"], second["usage"]["prompt_tokens"])

    def test_history_is_the_models_prompt(self):
        """The second turn is what one gets for the whole conversation at once."""
        status, out, _ = chat(*GREEDY, "--json", "--system", "You are kind.",
                              stdin="What is 7 + 5?\nWhat is the capital of France?\n")
        self.assertEqual(status, 0)
        first, second = map(json.loads, out.splitlines())
        with tempfile.TemporaryDirectory() as folder:
            lines, answers = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
            messages = [{"role": "system", "content": "You are kind."},
                        {"role": "user", "content": "What is 7 + 5?"},
                        {"role": "assistant", "content": first["content"]},
                        {"role": "user", "content": "What is the capital of France?"}]
            lines.write_text(json.dumps({
                "custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
                "body": {"messages": messages, "temperature": 0, "max_tokens": 200}}) + "\n")
            subprocess.run([PAGODA, "batch", "-i", lines, "-o", answers, NANO, "--device", "cpu"],
                           check=True, capture_output=True, env=environment(), timeout=120)
            body = json.loads(answers.read_text())["response"]["body"]
        self.assertEqual(second["content"], body["choices"][0]["message"]["content"])
        self.assertEqual(second["usage"]["prompt_tokens"], body["usage"]["prompt_tokens"])

    def test_turns_are_cheap(self):
        questions = "What is 7 + 5?\n" * 6
        status, out, _ = chat(*GREEDY, "--json", stdin=questions)
        self.assertEqual(status, 0)
        turns = [json.loads(line)["usage"] for line in out.splitlines()]
        self.assertEqual(turns[0]["cached_tokens"], 0)
        for before, after in zip(turns, turns[1:]):
            # All full blocks (of 16 tokens) of the turn before.
            self.assertGreaterEqual(after["cached_tokens"], before["total_tokens"] // 16 * 16 - 16)

    def test_system(self):
        status, out, err = chat(*GREEDY, "--json",
                                stdin="/system\n/system Be brief.\n/system\n/system -\n")
        self.assertEqual((status, out), (0, ""))
        self.assertEqual(err.splitlines(), ["(no system message)", "(system message set)",
                                            "Be brief.", "(no system message)"])

    def test_save(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a conversation.json")
            status, _, err = chat(*GREEDY, "--system", "S", stdin=f"What is 7 + 5?\n/save {path}\n")
            self.assertEqual(status, 0)
            self.assertIn(str(path), err)
            saved = json.loads(path.read_text())
            self.assertEqual(saved["messages"], [
                {"role": "system", "content": "S"},
                {"role": "user", "content": "What is 7 + 5?"},
                {"role": "assistant", "content": "7 + 5 = 12"}])
            status, _, err = chat(*GREEDY, stdin=f"/save {folder}/none/x\n/save\n")
            self.assertEqual(status, 1)
            self.assertIn(f"{folder}/none/x cannot be written", err)
            self.assertIn("/save needs", err)

    def test_unknown(self):
        status, out, err = chat(*GREEDY, stdin="/sav\n/zzzzzz\n")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("/save", err)
        self.assertIn("/help", err)

    def test_exit(self):
        for word in ("/exit", "/quit", "/bye"):
            status, out, _ = chat(*GREEDY, stdin=f"{word}\nWhat is 7 + 5?\n")
            self.assertEqual((status, out), (0, ""))


class WithoutATerminal(unittest.TestCase):
    def test_answers_alone_on_stdout(self):
        status, out, err = chat(*GREEDY, stdin="What is 7 + 5?\n\n  \nWhat is 2 + 2?")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out, "7 + 5 = 12\n2 + 2 = 4\n")

    def test_block(self):
        status, out, _ = chat(*GREEDY, "--json", stdin='"""What is\n7 + 5?"""\nWhat is 2 + 2?\n')
        self.assertEqual(status, 0)
        self.assertEqual(len(out.splitlines()), 2)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "saved")
            chat(*GREEDY, stdin=f'"""\n one\n\ntwo\n"""\n/save {path}\n')
            self.assertEqual(json.loads(path.read_text())["messages"][0]["content"], "one\n\ntwo")

    def test_context_overflow_drops_the_oldest(self):
        questions = "What is the capital of France?\n" * 12
        status, out, err = chat(*GREEDY, "--json", "--max-model-len", "128", stdin=questions)
        self.assertEqual(status, 0, err)
        turns = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(turns), 12)
        self.assertIn("the oldest 2 of", err)
        for turn in turns:
            self.assertLessEqual(turn["usage"]["prompt_tokens"], 96)  # a quarter for the answer
            self.assertIn("Paris", turn["content"])

    def test_message_longer_than_the_context(self):
        long = "word " * 300
        status, out, err = chat(*GREEDY, "--max-model-len", "128",
                                stdin=f"What is 7 + 5?\n{long}\nWhat is 7 + 5?\n")
        self.assertEqual(status, 1)
        self.assertEqual(out, "7 + 5 = 12\n7 + 5 = 12\n")  # the conversation goes on without it
        self.assertIn("tokens; 1 to 127 are allowed", err)

    def test_not_utf8(self):
        done = subprocess.run([PAGODA, "chat", NANO, *GREEDY], input=b"\xff\xfe\nWhat is 7 + 5?\n",
                              capture_output=True, env=environment(), timeout=120)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"UTF-8", done.stderr)
        self.assertEqual(done.stdout, b"7 + 5 = 12\n")

    def test_errors_are_lines_of_json_too(self):
        status, out, err = chat(*GREEDY, "--json", "--max-model-len", "64",
                                stdin="word " * 300 + "\n/foo\n")
        self.assertEqual((status, err), (1, ""))
        self.assertEqual([list(json.loads(line)) for line in out.splitlines()], [["error"]] * 2)

    def test_no_template(self):
        model = SOURCE / "tests" / "golden" / "models" / "llama-default"
        status, out, err = chat("--device", "cpu", stdin="x\n", model=model)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("chat template", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
