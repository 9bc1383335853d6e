"""Tests of ci/loom: what its runs mean, with a stand-in for the models."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import stat
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

DRIVER = Path(__file__).resolve().parent.parent / "loom"
sys.path.insert(0, str(DRIVER.parent))
loader = importlib.machinery.SourceFileLoader("loom", str(DRIVER))
spec = importlib.util.spec_from_loader("loom", loader)
loom = importlib.util.module_from_spec(spec)
sys.modules["loom"] = loom
sys.dont_write_bytecode = True
loader.exec_module(loom)

# Two models. A bug called `found` fails the first, `aborts` ends the process while it fails, `silent` does
# nothing, `crash` ends otherwise; BROKEN fails the first without a bug, GONE leaves the second out.
MODELS = """
    import os, sys
    bug = os.environ.get("SPRINGTIDE_MUTANT", "")
    if bug == "aborts":
        os.abort()
    if bug == "crash":
        sys.exit(3)
    if bug == "found" or "BROKEN" in os.environ:
        print("failed one_exhaustive 12 0.1")
        sys.exit(101)
    print("test words::one_exhaustive ... model one_exhaustive 40 0.2")
    if "GONE" not in os.environ:
        print("model two_preempt2 2 1.0")
    print("test result: ok")
"""


def mutant(name, model="one_exhaustive"):
    return loom.Mutant(name, "a bug", model, ())


class LoomTest(unittest.TestCase):
    def run_with(self, function, *arguments, **environment):
        """The function's result over the stand-in, and what it printed."""
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory, "models")
            program.write_text(f"#!{sys.executable}\n" + textwrap.dedent(MODELS))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            output = io.StringIO()
            quiet = contextlib.redirect_stderr(io.StringIO())
            with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(output), quiet:
                return function(program, *arguments), output.getvalue()

    def explore(self, *models, more=0, **environment):
        listed = [mutant(f"bug{number}", model) for number, model in enumerate(models)]
        return self.run_with(loom.explore, listed, more, **environment)

    def test_all_models_hold(self):
        failed, output = self.explore("one_exhaustive", "two_preempt2")
        self.assertEqual(failed, 0)
        self.assertIn("2 models, 42 executions", output)
        self.assertIn("models: 2 passed, 0 failed", output)

    def test_a_model_that_fails(self):
        failed, output = self.explore("one_exhaustive", "two_preempt2", BROKEN="1")
        self.assertGreater(failed, 0)
        self.assertIn("one_exhaustive: FAILED", output)

    def test_a_listed_model_that_did_not_run(self):
        failed, output = self.explore("one_exhaustive", "two_preempt2", GONE="1")
        self.assertEqual(failed, 1)
        self.assertIn("two_preempt2: did not run", output)

    def test_a_model_without_a_bug(self):
        failed, output = self.explore("one_exhaustive")
        self.assertEqual(failed, 1)
        self.assertIn("two_preempt2: no bug of", output)

    def test_with_more_preemptions_the_names_differ(self):
        failed, _ = self.explore("one_exhaustive", "two_preempt1", more=1)
        self.assertEqual(failed, 0)

    def test_arguments_that_would_explore_nothing_are_refused(self):
        for arguments, message in [
            (["--more", "-1"], "expected a number from 1"),
            (["--more", "0"], "expected a number from 1"),
            (["--more", "1", "--only", "bug"], "expected one of the two"),
        ]:
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as refused:
                loom.main(arguments)
            self.assertEqual(refused.exception.code, 2)
            self.assertIn(message, said.getvalue())

    def test_bugs(self):
        bugs = [mutant(name) for name in ("found", "aborts", "silent", "crash")]
        missed, output = self.run_with(loom.plant, bugs)
        self.assertEqual(missed, 2)
        rows = {line.split()[0]: line for line in output.splitlines()}
        self.assertRegex(rows["found"], r" 12 .* found by one_exhaustive")
        self.assertIn(" found by one_exhaustive", rows["aborts"])
        self.assertIn("NOT FOUND by one_exhaustive", rows["silent"])
        self.assertIn("ended with exit code 3", rows["crash"])
        self.assertIn("bugs: 2 passed, 2 failed", output)

    def test_a_bug_that_another_model_finds_is_not_found(self):
        missed, _ = self.run_with(loom.plant, [mutant("found", "two_preempt2")])
        self.assertEqual(missed, 1)

    def test_the_table_of_the_repository_is_complete(self):
        models = {file.read_text() for file in (loom.ROOT / "models/tests/loom").glob("*.rs")}
        mutants = loom.load_table((loom.ROOT / loom.TABLE).read_text(), loom.TABLE, set(), loom.read_mutant)
        for bug in mutants:
            self.assertTrue(any(f"fn {bug.model}()" in text for text in models), bug.model)


if __name__ == "__main__":
    unittest.main()
