"""The gate of the plugin interface: changed headers through layout.py.

    appends_test.py CC
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CC = sys.argv.pop(1)
CLOSE = (r"    // \[setup\] every device is closed by then\.\n"
         r"    void \(\*close\)\(void \*backend\);\n")


class Gate(unittest.TestCase):
    def gate(self, header, pattern, replacement, bump=True):
        """Sentences of the gate after one change of a header, in the next minor."""
        with tempfile.TemporaryDirectory() as folder:
            include = pathlib.Path(folder, "include")
            shutil.copytree(HERE.parent.parent / "include", include)
            path = include / "pagoda" / header
            text, n = re.subn(pattern, replacement, path.read_text(), count=1)
            self.assertEqual(n, 1, pattern)
            path.write_text(text)
            if bump:
                plugin = include / "pagoda" / "plugin.h"
                plugin.write_text(re.sub(
                    r"(#define PGD_ABI_MINOR) (\d+)", lambda m: f"{m[1]} {int(m[2]) + 1}",
                    plugin.read_text()))
            done = subprocess.run(
                [sys.executable, HERE / "layout.py", "--cc", CC, "--include", include],
                capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stderr)  # today's snapshot differs anyway
            self.assertEqual(done.stderr, "")
            gate = re.findall(r"^(?:against )?0\.\d+(?: is kept|: ).*$", done.stdout, re.M)
            return "\n".join(gate)

    def refused(self, header, pattern, replacement, *sentences):
        found = self.gate(header, pattern, replacement)
        for sentence in sentences:
            self.assertIn(f"against 0.1: {sentence}", found)

    def accepted(self, header, pattern, replacement):
        self.assertEqual(self.gate(header, pattern, replacement), "")

    def test_moved(self):
        self.refused("backend.h", r"(    int32_t layers;\n)(    int32_t heads;[^\n]*\n)", r"\2\1",
                     "pgd_kv_desc.layers was moved from byte 8 to byte 12",
                     "pgd_kv_desc.heads was moved from byte 12 to byte 8")

    def test_removed(self):
        self.refused("backend.h", r"    int32_t window;[^\n]*\n", "    int32_t reserved9;\n",
                     "pgd_kv_desc.window was removed")
        self.refused("plugin.h", CLOSE, "", "pgd_plugin.close was removed")

    def test_retyped(self):
        self.refused("backend.h", r"int32_t window;", "uint32_t window;",
                     "pgd_kv_desc.window was retyped from 'int32_t window' to 'uint32_t window'")
        self.refused("backend.h", r"(\(\*fill\)\(const pgd_device \*d, pgd_queue \*q, )const ",
                     r"\1", "pgd_queue_table.fill was retyped")

    def test_inserted(self):
        self.refused("backend.h", r"(    // H \[queue\] fills a range)",
                     r"    pgd_status (*rest)(const pgd_device *d);\n\1",
                     "pgd_queue_table.fill was moved from byte 48 to byte 56",
                     "pgd_queue_table.rest was inserted, not appended")

    def test_leaf(self):
        self.refused("types.h", r"    uint64_t src_pitch;\n", r"\g<0>    uint64_t more;\n",
                     "pgd_copy.more was added, but the struct is a leaf")
        self.refused("backend.h", r"    pgd_range mem;\n(?=\} pgd_kv_image)",
                     r"\g<0>    pgd_kv_plan plan;\n",
                     "pgd_kv_image.plan holds a pgd_kv_plan by value")

    def test_constants(self):
        self.refused("types.h", r"X\(I32, 4, 4,", "X(I32, 9, 4,",
                     "constant PGD_I32 was changed from 4 to 9")
        self.refused("plugin.h", r"PGD_LOG_DEBUG = 3", "PGD_LOG_MORE = 3",
                     "constant PGD_LOG_DEBUG was removed")
        self.refused("ops.h", r"    X\(argmax, NONE\)( +)\\\n", "",
                     "pgd_ops.sample was moved", "constant PGD_OP_sample was changed")
        self.refused("ops.h", r"#define PGD_ATTN_TILE 64", "#define PGD_ATTN_TILE 32",
                     "'#define PGD_ATTN_TILE 64' was changed or removed")

    def test_functions(self):
        self.refused("backend.h", r"\(\*pgd_notify_fn\)\(void \*arg, pgd_status code\)",
                     "(*pgd_notify_fn)(pgd_status code, void *arg)", "'typedef void (*pgd_notify")

    def test_appends(self):
        self.accepted("plugin.h", CLOSE, r"\g<0>    void (*quiesce)(void *backend);\n")
        self.accepted("backend.h", r"(    int32_t dtype; [^\n]*\n)(?=\} pgd_weight_part;)",
                      r"\1    int64_t more;\n")  # strided
        self.accepted("types.h", r"X\(I8, 5, 1, \"int8\"\)", r'\g<0> X(F64, 6, 8, "f64")')
        self.accepted("ops.h", r"X\(head_sample, WEIGHT\)\n",
                      "X(head_sample, WEIGHT) X(turn, NONE)\n\n"
                      "typedef pgd_rope_args pgd_turn_args;")
        self.accepted("backend.h", r"(typedef struct pgd_kv_image)",
                      r"typedef struct pgd_new { uint32_t size; uint32_t flags; } pgd_new;\n\1")

    def test_kept_minor_is_closed(self):
        found = self.gate("plugin.h", CLOSE, r"\g<0>    void (*quiesce)(void *backend);\n",
                          bump=False)
        self.assertIn("is kept and does not change any more: an addition needs PGD_ABI_MINOR",
                      found)


if __name__ == "__main__":
    unittest.main()
