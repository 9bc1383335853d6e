"""What ci/fuzz says of the targets is what there is."""

import importlib.machinery
import importlib.util
import io
import os
import re
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

CI = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CI))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("fuzz_lane", str(CI / "fuzz"))
lane = importlib.util.module_from_spec(importlib.util.spec_from_loader("fuzz_lane", loader))
loader.exec_module(lane)


class Usage(unittest.TestCase):
    def test_what_libfuzzer_would_take_for_something_else_is_refused(self):
        for arguments, message in [
            (["--minutes", "0"], "expected a number from"),
            (["--minutes", "nan"], "expected a number from"),
            (["--runs", "-1"], "expected a number from 1"),
            (["--seed", "9" * 20], "expected a number from 1"),
            (["key", "--input", str(CI)], "expected a file"),
            (["key", "--input", ""], "expected a file"),
            (["--runs", "5", "--merge"], "not allowed with"),
            (["nope"], "expected targets of"),
        ]:
            errors = io.StringIO()
            with redirect_stderr(errors):
                try:
                    code = lane.main(arguments)
                except SystemExit as refused:
                    code = refused.code
            self.assertEqual(code, 2, arguments)
            self.assertIn(message, errors.getvalue())


class Targets(unittest.TestCase):
    def test_the_lane_runs_every_target_of_the_crate(self):
        source = (CI.parent / "fuzz/src/lib.rs").read_text()
        targets = re.findall(r'^    \("(\w+)", \w+::run\),$', source, re.MULTILINE)
        self.assertGreater(len(targets), 0)
        self.assertEqual(list(lane.RUNS), targets)
        self.assertEqual(set(lane.LEN_MAX), set(targets))

    def test_the_lane_looks_for_every_planted_bug_of_the_crate(self):
        source = (CI.parent / "fuzz/src/planted.rs").read_text()
        planted = re.findall(r'\("(planted-\w+)", \w+\)', source)
        self.assertEqual(list(lane.PLANTED), planted)

    def test_no_seed_is_longer_than_what_the_target_is_given(self):
        for target, longest in lane.LEN_MAX.items():
            seeds = list((CI.parent / "fuzz/corpus" / target).iterdir())
            self.assertTrue(seeds, f"{target} has no corpus")
            for seed in seeds:
                self.assertLessEqual(seed.stat().st_size, longest, seed)

    def test_a_planted_bug_counts_as_found_by_its_kind_of_finding_only(self):
        with tempfile.TemporaryDirectory() as directory, patch.dict(os.environ, CARGO_TARGET_DIR=directory):
            for script, expected in [
                ("""for a in "$@"; do case $a in -artifact_prefix=*) touch "${a#*=}oom-1";; esac; done; exit 71""", True),
                ("""for a in "$@"; do case $a in -artifact_prefix=*) touch "${a#*=}crash-1";; esac; done; exit 77""", False),
                ("exit 0", False),
            ]:
                program = Path(directory, "program")
                program.write_text(f"#!/bin/sh\n{script}\n")
                program.chmod(0o755)
                with redirect_stdout(io.StringIO()) as said, redirect_stderr(io.StringIO()):
                    self.assertEqual(lane.find_planted([program], "planted-memory"), expected)
                self.assertEqual("NOT FOUND: expected an input oom-*" in said.getvalue(), not expected)

    def test_two_runs_at_once_have_nothing_in_common_but_what_longer_ones_keep(self):
        with tempfile.TemporaryDirectory() as directory, patch.dict(os.environ, CARGO_TARGET_DIR=directory):
            with lane.own_directory("planted") as one, lane.own_directory("planted") as other:
                self.assertNotEqual(one, other)
                self.assertEqual([one.parent, other.parent], [lane.made(), lane.made()])
            self.assertFalse(one.exists() or other.exists())

    def test_a_missing_tool_is_named(self):
        with patch.dict(os.environ, CXX="no-such-compiler"), redirect_stderr(io.StringIO()) as said:
            self.assertEqual(lane.main([]), 2)
        self.assertIn("no-such-compiler is not in PATH", said.getvalue())
        with patch.dict(os.environ, PATH=""), redirect_stderr(io.StringIO()) as said:
            self.assertEqual(lane.main([]), 2)
        self.assertIn("cargo and rustc are not in PATH", said.getvalue())

    def test_a_target_that_is_not_there_is_a_usage_error(self):
        self.assertEqual(lane.main(["no-such-target"]), 2)
        self.assertEqual(lane.main(["header", "pool", "--input", __file__]), 2)


if __name__ == "__main__":
    unittest.main()
