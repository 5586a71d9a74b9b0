"""What ci/lint.py and ci/rooms.py share: the list of files, and C text without comments."""
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)


def files(*suffixes):
    """Paths below ROOT that git tracks or would track, with one of the suffixes, sorted."""
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in out.split("\0") if name.endswith(suffixes)}
    return [Path(name) for name in sorted(names) if (ROOT / name).is_file()]


def blank(match):
    """As many lines as the match, and no text."""
    return "\n" * match.group().count("\n") or " "


def without_comments(text):
    return TOKEN.sub(lambda m: blank(m) if m.group()[0] == "/" else m.group(), text)


def bare_code(text):
    """The text without comments and without what stands between quotes."""
    return TOKEN.sub(lambda m: blank(m) if m.group()[0] == "/" else '""', text)
