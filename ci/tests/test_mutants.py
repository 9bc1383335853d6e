"""Tests of ci/mutants: the table and the verdicts, with a stand-in for the simulator."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import stat
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

DRIVER = Path(__file__).resolve().parent.parent / "mutants"
sys.path.insert(0, str(DRIVER.parent))
loader = importlib.machinery.SourceFileLoader("mutants", str(DRIVER))
spec = importlib.util.spec_from_loader("mutants", loader)
mutants = importlib.util.module_from_spec(spec)
sys.modules["mutants"] = mutants
sys.dont_write_bytecode = True
loader.exec_module(mutants)

ENTRY = """
[[mutant]]
name = "{name}"
bug = "a bug"
class = ["LEAK"]
expect = ["I3"]
file = "a.rs"
find = "{find}"
replace = "{replace}"
"""


def entry(name="first", find="x < 1", replace="MUTANT_ON || x < 1"):
    return ENTRY.format(name=name, find=find, replace=replace)


def read(text):
    return mutants.read_table(text, "table")


def mutant(name="first", expect=("I3",), args=(), timeout_s=10):
    return mutants.Mutant(name, "a bug", ("LEAK",), tuple(expect), (), tuple(args), timeout_s)


class TableTest(unittest.TestCase):
    def refused(self, text):
        with self.assertRaises(mutants.MutantError) as caught:
            read(text)
        return str(caught.exception)

    def test_flat_entry_is_one_edit(self):
        (only,) = read(entry())
        self.assertEqual(only.edits, (mutants.Edit("a.rs", "x < 1", "MUTANT_ON || x < 1"),))
        self.assertEqual((only.expect, only.args), (("I3",), ("--json", "--plans", "200")))

    def test_settings_of_the_table_and_of_a_mutant(self):
        text = 'args = ["--all"]\ntimeout_s = 7\n' + entry("a") + 'args = ["--one"]\n' + entry("b", "y")
        first, second = read(text)
        self.assertEqual((first.args, first.timeout_s), (("--one",), 7))
        self.assertEqual((second.args, second.timeout_s), (("--all",), 7))

    def test_several_edits(self):
        text = """
            [[mutant]]
            name = "split"
            bug = "two places"
            class = ["LEAK"]
            expect = ["I2"]
            [[mutant.edit]]
            file = "a.rs"
            find = "one"
            replace = "if MUTANT_ON {} else {}"
            [[mutant.edit]]
            file = "b.rs"
            find = "two"
            replace = "three"
        """
        (only,) = read(text)
        self.assertEqual([edit.file for edit in only.edits], ["a.rs", "b.rs"])

    def test_what_is_refused(self):
        self.assertIn("at least one", self.refused(""))
        self.assertIn("unknown field mutants", self.refused("[[mutants]]\n"))
        self.assertIn("first occurs 2 times", self.refused(entry() + entry()))
        self.assertIn("unknown field why", self.refused(entry() + 'why = "?"\n'))
        self.assertIn("could not be switched off", self.refused(entry(replace="true")))
        self.assertIn("lower-case letters", self.refused(entry(name="a b")))
        self.assertIn("field find, a str", self.refused(entry(find="")))
        self.assertIn("field expect, a list", self.refused(entry().replace('["I3"]', '"I3"')))
        self.assertIn("field class, a list", self.refused(entry().replace('["LEAK"]', '"LEAK"')))
        self.assertIn("table: ", self.refused("not toml"))

    def test_every_class_has_a_mutant_or_is_elsewhere(self):
        def coverage(text):
            return mutants.read_coverage(text + entry(), "table")

        self.assertEqual(coverage('classes = ["LEAK"]\noracles = ["I3"]\n'), (("I3",), ()))
        here = str(Path(__file__).relative_to(mutants.ROOT))
        self.assertEqual(coverage(f'classes = ["LEAK", "KEY"]\nelsewhere = {{ KEY = "{here}" }}\n'), ((), ()))
        refused = {
            'classes = ["LEAK", "KEY"]\n': "no mutant is of class KEY",
            'classes = ["KEY"]\n': "unknown class LEAK",
            f'classes = ["LEAK"]\nelsewhere = {{ LEAK = "{here}" }}\n': "a class without a mutant",
            'classes = ["LEAK", "KEY"]\nelsewhere = { KEY = "no/file" }\n': "got no/file",
        }
        for text, message in refused.items():
            with self.assertRaises(mutants.MutantError) as caught:
                coverage(text)
            self.assertIn(message, str(caught.exception))


class VerdictTest(unittest.TestCase):
    def verdict(self, code, report, of=mutant()):
        return mutants.judge(of, code, json.dumps(report), 0.0).verdict

    def test_caught(self):
        report = {"plans": 12, "violations": [{"oracle": "I3"}, {"oracle": "I3 (exclusivity)"}]}
        result = mutants.judge(mutant(), 1, json.dumps(report), 1.5)
        self.assertEqual((result.passed, result.verdict), (True, "caught"))
        self.assertEqual((result.oracles, result.plans), (("I3",), 12))

    def test_one_document_a_line_and_nested_reports(self):
        output = 'starting\n{"plan": 1}\n{"scenarios": [{"violations": [{"oracle": "I5"}]}]}\n'
        result = mutants.judge(mutant(expect=["I3", "I5"]), 3, output, 0.0)
        self.assertEqual((result.verdict, result.oracles), ("caught", ("I5",)))

    def test_not_caught(self):
        cases = {
            "not caught": (0, {"violations": []}),
            "wrong oracle: expected I3": (1, {"violations": [{"oracle": "I7"}]}),
            "exit 1, but no oracle is reported": (1, {}),
            "the simulator refused its arguments (exit 2)": (2, {}),
            "the run was not deterministic (exit 4)": (4, {}),
            "the simulator itself failed (exit 101)": (101, {}),
            "no verdict within 10 s": (None, {}),
        }
        for verdict, (code, report) in cases.items():
            self.assertEqual(self.verdict(code, report), verdict)
            self.assertFalse(mutants.judge(mutant(), code, json.dumps(report), 0.0).passed)

    def test_another_oracle_beside_the_expected_one(self):
        report = {"violations": [{"oracle": "I3"}, {"oracle": "I7"}]}
        self.assertEqual(self.verdict(1, report), "wrong oracle: expected I3")

    def test_the_code_as_it_is_must_be_green(self):
        plain = mutant(mutants.NO_MUTANT)
        self.assertEqual(self.verdict(0, {}, plain), "green")
        self.assertEqual(self.verdict(1, {"violations": [{"oracle": "I3"}]}, plain), "expected exit 0, got 1")


class RunTest(unittest.TestCase):
    """Whole runs of a program that stands in for the simulator."""

    SIMULATOR = """
        import json, os, sys, time
        name = os.environ.get("SPRINGTIDE_MUTANT", "")
        if name == "slow":
            time.sleep(30)
        broken = name if name != "silent" else ""
        if "--red" in sys.argv:
            broken = "always"
        print(json.dumps({"plans": 3, "violations": [{"oracle": "I3"}] if broken else []}))
        sys.exit(1 if broken else 0)
    """

    def run_all(self, *selected):
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory, "sim")
            program.write_text(f"#!{sys.executable}\n" + textwrap.dedent(self.SIMULATOR))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors):
                results = mutants.run_all(program, list(selected), quiet=True)
        return [(result.name, result.verdict) for result in results], errors.getvalue()

    def test_green_without_and_caught_with(self):
        results, errors = self.run_all(mutant("first"), mutant("silent"))
        self.assertEqual(results, [("(none)", "green"), ("first", "caught"), ("silent", "not caught")])
        self.assertIn("run it with: SPRINGTIDE_MUTANT=silent ", errors)

    def test_a_selection_from_outside_does_not_reach_the_plain_run(self):
        with mock.patch.dict(os.environ, {mutants.VARIABLE: "first"}):
            results, _ = self.run_all(mutant("first"))
        self.assertEqual(results[0], ("(none)", "green"))

    def test_a_red_simulator_ends_the_campaign(self):
        results, _ = self.run_all(mutant(args=["--red"]))
        self.assertEqual(results, [("(none)", "expected exit 0, got 1")])

    def test_a_hang_is_no_verdict(self):
        results, _ = self.run_all(mutant("slow", timeout_s=1))
        self.assertEqual(results[1], ("slow", "no verdict within 1 s"))

    def test_exit_codes_and_closing_line(self):
        caught = mutants.judge(mutant(), 1, '{"violations": [{"oracle": "I3"}]}', 0.0)
        missed = mutants.judge(mutant("second"), 0, "{}", 0.0)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            codes = [mutants.report([caught], False), mutants.report([caught, missed], False)]
        self.assertEqual(codes, [0, 1])
        self.assertEqual(output.getvalue().splitlines()[-1], "mutants: 1 passed, 1 failed")

    def test_an_oracle_that_catches_nothing_fails_the_run(self):
        caught = mutants.judge(mutant(), 1, '{"violations": [{"oracle": "I3"}]}', 0.0)
        idle = mutants.idle_oracles(("I3", "I6"), [caught])
        self.assertEqual(idle, ["I6"])
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(mutants.report([caught], False, idle), 1)
        self.assertIn("no mutant was caught by I6", output.getvalue())


if __name__ == "__main__":
    unittest.main()
