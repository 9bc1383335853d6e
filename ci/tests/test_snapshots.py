"""Tests of ci/snapshots."""

import contextlib
import importlib.machinery
import importlib.util
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SCRIPT = Path(__file__).resolve().parent.parent / "snapshots"
sys.path.insert(0, str(SCRIPT.parent))
loader = importlib.machinery.SourceFileLoader("snapshots", str(SCRIPT))
spec = importlib.util.spec_from_loader("snapshots", loader)
snapshots = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
loader.exec_module(snapshots)

OLD = "---\nsource: a.rs\nexpression: text\n---\nbefore\n"
NEW = "---\nsource: a.rs\nassertion_line: 7\nexpression: text\n---\nassertion_line: kept, it is content\n"


class SnapshotsTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        patch = mock.patch.object(snapshots, "ROOT", self.root)
        patch.start()
        self.addCleanup(patch.stop)
        folder = self.root / "src/snapshots"
        folder.mkdir(parents=True)
        self.old, self.new = folder / "a__one.snap", folder / "a__one.snap.new"
        self.old.write_text(OLD)

    def run_script(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = snapshots.main(list(arguments))
        return code, output.getvalue()

    def test_nothing_pending(self):
        self.assertEqual(self.run_script(), (0, "0 pending snapshots\n"))

    def test_review_shows_the_difference(self):
        self.new.write_text(NEW)
        code, text = self.run_script("review")
        self.assertEqual(code, 1)
        self.assertIn("-before", text)
        self.assertIn("+assertion_line: kept, it is content", text)

    def test_accept_moves_it_over(self):
        self.new.write_text(NEW)
        self.assertEqual(self.run_script("accept", "other")[1], "0 snapshots accepted\n")
        self.assertEqual(self.run_script("accept", "one")[0], 0)
        self.assertFalse(self.new.exists())
        self.assertEqual(
            self.old.read_text(),
            "---\nsource: a.rs\nexpression: text\n---\nassertion_line: kept, it is content\n",
        )

    def test_reject_forgets_it(self):
        self.new.write_text(NEW)
        self.run_script("reject")
        self.assertFalse(self.new.exists())
        self.assertEqual(self.old.read_text(), OLD)

    def test_a_snapshot_without_a_test_is_stale(self):
        references = self.root / "references"
        references.write_text(f"{self.old}\n")
        self.assertEqual(self.run_script("unreferenced", str(references))[0], 0)
        self.old.with_name("a__two.snap").write_text(OLD)
        code, text = self.run_script("unreferenced", str(references))
        self.assertEqual(code, 1)
        self.assertIn("no test asserts src/snapshots/a__two.snap", text)

    def test_usage(self):
        self.assertEqual(self.run_script("unreferenced")[0], 2)
        self.assertEqual(self.run_script("approve")[0], 2)


if __name__ == "__main__":
    unittest.main()
