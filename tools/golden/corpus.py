"""The texts that tokenizer_cases.py trains on and asks about, all written for it."""

import unicodedata

SENTENCES = [
    "The pagoda stands on a small hill, and the river runs around it.",
    "When the lantern is lit, the keeper walks down the stairs and counts the steps.",
    "She doesn't know where he's gone; they'll ask, we've waited, I'm sure it'd help.",
    "In 1987 there were 12345 boats, 67 bridges and 890 lamps (about 3.14 each).",
    "The keeper of the lantern opens the door of the hall, and the children of the town come in.",
    "Please read the following instructions carefully before you answer the question.",
    "Der Fährmann überquert den Fluß, während die Glocken läuten und es schneit.",
    "Größere Häuser stehen über dem Tal; natürlich kennt man dort schöne Lieder.",
    "Le garçon mange une crêpe près de la forêt, où l'été n'est jamais très long.",
    "El niño pequeño soñó con una montaña; ¿cuántas piñas había allí? ¡Muchísimas!",
    "A lua está alta, o coração não dorme e as canções vão longe.",
    "Żółta łódź płynie powoli ścieżką wśród trzcin, a źródło śpiewa.",
    "Маленький дом стоит у реки, и каждое утро в нём горит свет.",
    "Привет, как дела? Сегодня хорошая погода, пойдём гулять.",
    "Το μικρό σπίτι στέκεται δίπλα στο ποτάμι και το φως ανάβει κάθε βράδυ.",
    "小さな塔は川のそばに立っています。毎晩、灯りがともります。",
    "カメラとテレビとコーヒーを買いました。",
    "小塔立在河边,每天晚上都点着灯。今天天气很好,我们去散步吧。",
    "작은 탑이 강가에 서 있고 매일 밤 등불이 켜집니다.",
    "البرج الصغير يقف بجانب النهر وكل ليلة يضيء المصباح.",
    "המגדל הקטן עומד ליד הנהר ובכל לילה נדלק האור.",
    "छोटा मंदिर नदी के किनारे खड़ा है और हर रात दीपक जलता है।",
    "หอคอยเล็กตั้งอยู่ริมแม่น้ำ และทุกคืนโคมไฟจะสว่าง",
    "int main(void) {\n    for (int i = 0; i < 10; i++) {\n        sum += a[i];\n    }\n}\n",
    "def add(x, y):\n\treturn x + y  # the sum\n\nprint(add(1, 2))\n",
    '{"name": "lantern", "lit": true, "steps": [1, 2, 3], "keeper": null}',
    "Nice work 🙂🙂 see you tomorrow 👍 at the café ☕!",
    "It costs $9.99 or 8,50 €; that is 15 % less than £12.",
    "   indented by three, then    four spaces,\tand a tab\r\nend of line\r\n",
    "HELLO WORLD! THE LANTERN IS LIT. WE'VE SEEN IT.",
]

GREETINGS = [
    "",
    " ",
    "  ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    " \n",
    "\n ",
    "a",
    " a",
    "a ",
    " a ",
    "\u2581",
    "\u2581a",
    "a\u2581b",
    "\u2581\u2581",
    " \u2581",
    "\u2581 ",
]

WHITESPACE = ["a" + " " * n + "b" for n in (1, 2, 3, 4, 5, 8, 15, 16, 17, 40)] + [
    " " * 7,
    " " * 33,
    "\t\t\tx",
    "a \t b",
    "x\n\n\ny",
    "x\r\n\r\ny",
    "x\r\r\ny",
    "x \r\n  y",
    "\n\n   z",
    "   \n   \n",
    "tail   ",
    "tail \n",
    "tail\n ",
    "a\u00a0b",
    "a \u00a0 b",
    "a\u3000b",
    "\u2003\u2009c",
    "a\u0085b",
    "a\u2028b\u2029c",
    "a\u200bb",
    "a\u180eb",
    "a\x0b\x0cb",
    "a\x1cb\x1d\x1e\x1fc",
    "a \x1f b",
    "a\u1680b",
    "end.\n\nNext",
    "x.\n  - y\n  - z\n",
    "!!\n\n??",
    "?\r\n!",
    ")\n\n)",
    " .\n ,\r\n;",
    "a\ufeffb",
]

WORDS = [
    "The keeper walks down.",
    " The keeper walks down.",
    "thekeeperwalks",
    "hello",
    "Hello, World!",
    "don't DON'T Don'T dON't",
    "I'm I'M we'll WE'LL they've THEY'VE you're YOU'RE he'd HE'D it's IT'S",
    "'s 'S 'ſ 're 'RE 'll 'lL",
    "rock'n'roll 'twas o'clock",
    "don\u2019t it\u2019s",
    "''''s",
    "' s",
    "x's's's",
    "'so 'table 'max 'like 'date",
    "1 12 123 1234 12345 123456 1234567",
    "3.14159 1,000,000 0x1F 1e-9",
    "a1b22c333d4444",
    "٠١٢٣٤٥ ०१२३ 一二三 Ⅷ ² ½ ①",
    "1/2 50% #1 @2",
    "2024-12-31T23:59:59Z",
    "v1.2.3-rc4",
    "CamelCaseWord snake_case_word kebab-case-word",
    "ALLCAPS lower MiXeD",
    "ÀÉÎ àéî ÀÉÎabc",
    "ǅ ǈ ǋ",
    "ʰʲ ª º",
    "http://example.org/a?b=c&d=e#f",
    "user@example.org",
    "C:\\dir\\file.txt",
    "/usr/lib/x.so.1",
    "(a) [b] {c} <d> «e» „f“ “g”",
    "...---...!!!???",
    "a+b=c; d*=e/f; g**h; i//j",
    "===>>><<<===",
    "$$$ ### %%% ^^^",
    "~`!@#$%^&*()_+-={}|[]\\:\";'<>?,./",
    "\u2014\u2013\u2026",
    "a\u00adb",
    "a" * 500,
    "ab" * 100,
    "=" * 120,
    "no spaces atallhere",
    "x" + "y" * 37 + "z",
    "the the the the the",
    "lanternlanternlantern",
    "  leading",
    "trailing  ",
    "pagodahouse",
    "unreachable words stay whole",
    "a pagodahouse, unreachable",
    "x 🍵 🍵x слово",
    "999 9999 99",
    "</s>",
    "<s>",
    "<unk>",
    "<0x41>",
    "<0xE4><0xBD><0xA0>",
    "<|nope|>",
    "int main(void) { return 0; }\n",
    "\tif (x) {\n\t\ty();\n\t}\n",
    "SELECT * FROM t WHERE a='b';",
    "# Title\n\n- one\n- two\n\n```c\nint x;\n```\n",
    '{"a": [1, 2.5, "x"], "b": null}',
    '<p class="x">y</p>',
]

UNICODE = [
    "Größe Fluß naïve café",
    "cafe\u0301 nai\u0308ve",
    "e\u0301e\u0301",
    "\u0301a",
    "a\u0301\u0323b",
    "a\u0323\u0301b",
    "q\u0307\u0323",
    "a" + "\u0301" * 40,
    "\u1e9b\u0323",
    "\u0344",
    "\u212b\u2126\u212a",
    "\u0958\u0959",
    "\ufb1d\ufb2a",
    "\U0001d15e\U0001d160",
    "\u1100\u1161\u11a8",
    "\uac00\u11a8",
    "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "한국어",
    "\u0915\u094d\u0937\u093f",
    "हिन्दी में",
    "ภาษาไทย",
    "ພາສາລາວ",
    "မြန်မာ",
    "ქართული",
    "Հայերեն",
    "አማርኛ",
    "ᐃᓄᒃᑎᑐᑦ",
    "العربية",
    "اَلْعَرَبِيَّةُ",
    "עִבְרִית",
    "فارسی‌زبان",
    "日本語テキスト",
    "漢字とカナ交じり文、句読点。",
    "繁體中文",
    "简体中文,标点!",
    "ｆｕｌｌｗｉｄｔｈ １２３",
    "ﾊﾝｶｸ",
    "㍿㌔℃",
    "ﬁﬂﬃ",
    "Ελληνικά",
    "Ἀθῆναι",
    "Привет мир",
    "Ѐё",
    "Việt Nam tiếng",
    "İstanbul ıI",
    "Straße STRASSE ẞ",
    "🙂",
    "🙂🙃",
    " 🙂 ",
    "👍🏽",
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "🇩🇪🇯🇵",
    "1️⃣2️⃣",
    "❤️ ❤",
    "☕️x",
    "a🙂b👍c",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "𝟘𝟙𝟚",
    "𐍈𐌰",
    "𠮷野家",
    "𓀀𓂀",
    "\x00",
    "a\x00b",
    "\x00\x00 \x00",
    "\x01\x02\x7f",
    "\x1b[31mred\x1b[0m",
    "\ufeff",
    "\ufeffabc",
    "\ue000\uf8ff",
    "\U000f0000\U0010fffd",
    "\ufffd",
    "a\ufffdb",
    "\ufffe\uffff",
    "\U0010ffff",
    "\u0378",
    "\u200d",
    "a\u200db",
    "\u200e\u200f",
    "\u202eabc\u202c",
    "\u2060x",
    "\u0600\u06dd",
    "x\u20e3",
    "\u0e33\u0eb3",
    "\u0f71\u0f72\u0f74",
    "Z\u0351\u036b\u0343A\u030aL\u0321G\u0329O\u0321",
    "\u1fef\u1f71",
    "\u037e\u00b7\u0387",
    "\u2000\u2001",
]


def training_lines(rng):
    """The sentences, many times over in random order and random pairs."""
    lines = []
    for _ in range(40):
        order = SENTENCES[:]
        rng.shuffle(order)
        lines += order
        lines += [a + " " + b for a, b in zip(order[::2], order[1::2])]
    return lines


def assigned(rng):
    """A random assigned code point, of all planes alike or of the lower ones."""
    while True:
        top = rng.choice([0x250, 0x800, 0x3000, 0x10000, 0x20000, 0xF0000])
        c = chr(rng.randrange(top))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            return c


def random_texts(rng, n):
    """Half are raw code points, half are pieces of sentences glued at odd places."""
    out = []
    glue = [
        " ",
        "",
        "  ",
        "\n",
        "\t",
        ".",
        ", ",
        "'",
        "\r\n",
        "🙂",
        "\u0301",
        "_",
        "1",
        "99",
        "\u00a0",
        "-",
    ]
    for i in range(n):
        if i % 2:
            out.append("".join(assigned(rng) for _ in range(rng.randrange(1, 24))))
        else:
            parts = []
            for _ in range(rng.randrange(2, 6)):
                s = rng.choice(SENTENCES)
                a = rng.randrange(len(s))
                parts.append(s[a : a + rng.randrange(1, 16)])
                parts.append(rng.choice(glue))
            out.append("".join(parts))
    return out


def around(content, others, rng):
    """One added token in odd places: inside words, by itself, beside others, cut short."""
    o = rng.choice(others)
    return [
        content,
        content + content,
        " " + content,
        content + " ",
        "  " + content + "  ",
        "a" + content + "b",
        "a " + content + " b",
        "\n" + content + "\n",
        "x\t\u3000" + content + "\u00a0 y",
        content + o,
        o + " " + content,
        content[:-1],
        content[1:],
        content[:-1] + content,
        content.upper(),
        "é" + content + "é",
        content + "\u0301",
    ]


def word_borders(content):
    """A single_word token beside everything that might or might not be a word character."""
    beside = [
        "_",
        "9",
        "é",
        "\u0301",
        "²",
        "Ⅷ",
        "Ⓐ",
        "ª",
        "中",
        "\u200d",
        "\u200c",
        "-",
        ".",
        "'",
        "🙂",
        "\u203f",
        "٣",
        "½",
    ]
    return (
        [b + content for b in beside]
        + [content + b for b in beside]
        + [f"{content} {content}, {content}"]
    )
