"""Tests of ci/quickstart on pages of their own: no clone, no build."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

SCRIPT = Path(__file__).resolve().parent.parent / "quickstart"
sys.path.insert(0, str(SCRIPT.parent))
loader = importlib.machinery.SourceFileLoader("quickstart", str(SCRIPT))
spec = importlib.util.spec_from_loader("quickstart", loader)
quickstart = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
sys.modules["quickstart"] = quickstart
loader.exec_module(quickstart)


def page(*blocks):
    """A page with these blocks: what stands behind the fence, and what is in it."""
    return "text\n\n" + "\n".join(f"```{mark}\n{content}\n```\n" for mark, content in blocks)


def run(text, kind="test", limit=30):
    """The exit code, and everything that was said."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = quickstart.run(quickstart.chosen(text, kind), Path(directory), limit)
    return code, said.getvalue()


# Stands in for python, pip and curl: what vLLM and its proxy would do with their arguments.
STAND_IN = f"""#!{sys.executable}
import json, os, sys, time
name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
if "-m" in arguments or name == "pip":
    with open(os.environ["RECORD"], "a") as record:
        record.write(json.dumps([name, *arguments]) + "\\n")
if "-m" in arguments:
    time.sleep(600)
elif "-c" in arguments:
    compile(arguments[-1], "IMAGE", "exec")
    print("aW1hZ2U=")
elif "-d" in arguments:
    (part, text) = json.loads(arguments[arguments.index("-d") + 1])["messages"][0]["content"]
    assert part["image_url"]["url"] == "data:image/png;base64,aW1hZ2U=", part
elif arguments[-1].endswith("/health"):
    # They are healthy when they have begun.
    deadline = time.monotonic() + 100
    while open(os.environ["RECORD"]).read().count('"-m"') < 3:
        assert time.monotonic() < deadline, "not begun"
        time.sleep(0.05)
elif arguments[-1].endswith("/metrics"):
    print('vllm:springtide_lookups_total{{engine="0",outcome="hit",reason="store"}} 1.0')
"""


class ReadingTest(unittest.TestCase):
    def test_blocks_are_chosen_by_their_mark(self):
        text = page(("bash test", "one"), ("bash vllm", "two"), ("json", "{}"), ("", "three"), ("text output", "2"))
        self.assertEqual([block.commands for block in quickstart.chosen(text, "test")], ["one"])
        (other,) = quickstart.chosen(text, "vllm")
        self.assertEqual((other.line, other.commands, other.expected), (7, "two", ["2"]))

    def test_a_mark_that_nobody_knows_is_an_error(self):
        for mark in ("bash tset", "bash", "text outptu"):
            with self.assertRaisesRegex(quickstart.PageError, f"line 3: a block that begins with '{mark}'"):
                quickstart.blocks(page((mark, "x")))

    def test_a_page_that_has_lost_its_blocks_is_an_error(self):
        with self.assertRaisesRegex(quickstart.PageError, "expected blocks that begin with ```bash test, found none"):
            quickstart.chosen(page(("bash vllm", "x")), "test")
        with self.assertRaisesRegex(quickstart.PageError, "line 3: output of no commands"):
            quickstart.blocks(page(("text output", "x")))
        with self.assertRaisesRegex(quickstart.PageError, "line 1: a block without an end"):
            quickstart.blocks("```bash test\nx\n")

    def test_the_page_itself_can_be_read(self):
        text = (quickstart.ROOT / quickstart.PAGE).read_text()
        for kind in quickstart.KINDS:
            self.assertGreaterEqual(len(quickstart.chosen(text, kind)), 4)


class CloneTest(unittest.TestCase):
    def test_without_git_all_files_are_copied(self):
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()) as said:
            with mock.patch.object(quickstart, "TARGET", Path(directory)), mock.patch.object(quickstart, "commit", lambda: None):
                clone = quickstart.fresh_clone()
            self.assertIn("no commit is known here", said.getvalue())
            self.assertEqual((clone / quickstart.PAGE).read_bytes(), (quickstart.ROOT / quickstart.PAGE).read_bytes())
            self.assertTrue(os.access(clone / "ci/quickstart", os.X_OK))


class RunningTest(unittest.TestCase):
    def test_blocks_share_a_shell(self):
        text = page(("bash test", "number=7\nsay() { echo \"$1 $number\"; }"), ("bash test", "say it"), ("text output", "it 7"))
        code, said = run(text)
        self.assertEqual(code, 0, said)
        self.assertIn("docs/quick-start.md:8", said)

    def test_the_block_that_fails_is_named(self):
        code, said = run(page(("bash test", "echo first"), ("bash test", "false\necho never")))
        self.assertEqual(code, 1)
        self.assertIn("docs/quick-start.md:7: the commands of this block ended with exit code 1", said)
        self.assertNotIn("never", said)

    def test_output_that_did_not_come_is_named(self):
        code, said = run(page(("bash test", "echo one; echo two >&2"), ("text output", "one\n\ntwo\nthree")))
        self.assertEqual(code, 1)
        self.assertEqual(said.count("expected a line"), 1)
        self.assertIn("docs/quick-start.md:3: expected a line 'three'", said)

    def test_what_runs_in_the_background_ends_with_it(self):
        started = time.monotonic()
        code, said = run(page(("bash test", "sleep 60 >log 2>&1 &\necho pid $!")))
        self.assertEqual(code, 0, said)
        self.assertLess(time.monotonic() - started, 30)

    def test_commands_that_do_not_end_are_ended(self):
        code, said = run(page(("bash test", "echo begun\nsleep 60")), limit=1)
        self.assertEqual(code, 1)
        self.assertIn("the commands of this block did not end within 1 s", said)

    def test_what_needs_vllm_says_what_it_should(self):
        with tempfile.TemporaryDirectory() as directory:
            record = Path(directory, "record")
            for name in ("python", "pip", "curl"):
                Path(directory, name).write_text(STAND_IN)
                Path(directory, name).chmod(0o755)
            path = f"{directory}:{os.environ['PATH']}"
            variables = {"PATH": path, "RECORD": str(record), "MODEL": "a/model", "FLAGS": '--limits {"image":4}'}
            with mock.patch.dict(os.environ, variables):
                code, said = run((quickstart.ROOT / quickstart.PAGE).read_text(), "vllm", 120)
            self.assertEqual(code, 0, said)
            self.assertIn('outcome="hit"', said)
            started = [json.loads(line) for line in record.read_text().splitlines()]
        instances = [call for call in started if "vllm.entrypoints.openai.api_server" in call]
        transfers = [json.loads(call[call.index("--ec-transfer-config") + 1]) for call in instances]
        self.assertEqual(sorted(transfer["ec_role"] for transfer in transfers), ["ec_consumer", "ec_producer"])
        self.assertEqual(*(transfer["ec_connector_extra_config"] for transfer in transfers))
        for call in instances:
            self.assertIn("a/model", call)
            self.assertIn('{"image":4}', call)
        self.assertEqual(sum("springtide.proxy" in call for call in started), 1)


if __name__ == "__main__":
    unittest.main()
