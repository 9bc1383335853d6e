"""Tests of ci/mutants: the table, the edits, and the verdicts, with a stand-in for the simulator."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

DRIVER = Path(__file__).resolve().parent.parent / "mutants"
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
    return mutants.Mutant(name, "a bug", tuple(expect), (), tuple(args), timeout_s)


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
        self.assertIn("table: ", self.refused("not toml"))


class EditTest(unittest.TestCase):
    def mutate(self, text, *edits):
        named = [(name, mutants.Edit("a.rs", find, replace)) for name, find, replace in edits]
        return mutants.mutate("a.rs", text, named)

    def refused(self, text, *edits):
        with self.assertRaises(mutants.MutantError) as caught:
            self.mutate(text, *edits)
        return str(caught.exception)

    def test_edits_apply_wherever_they_stand_in_the_list(self):
        text = self.mutate("one two three", ("b", "three", "3"), ("a", "one", "1"))
        self.assertEqual(text, "1 two 3")

    def test_an_edit_does_not_see_the_result_of_another(self):
        text = self.mutate("one two", ("a", "one", "two"), ("b", "two", "one"))
        self.assertEqual(text, "two one")

    def test_no_match_and_two_matches_are_errors(self):
        self.assertIn("mutant a: expected one match of 'x'…, found 0", self.refused("y", ("a", "x", "z")))
        self.assertIn("found 2", self.refused("x x", ("a", "x", "z")))

    def test_overlap_is_an_error_that_names_both(self):
        error = self.refused("abcd", ("first", "abc", "x"), ("second", "cd", "y"))
        self.assertIn("first and second overlap", error)

    def test_the_switch_is_an_expression_with_the_mutants_name(self):
        text = self.mutate("if full {", ("no-limit", "full", "!MUTANT_ON && full"))
        self.assertNotIn("MUTANT_ON", text)
        self.assertIn('name == "no-limit"', text)
        self.assertTrue(text.startswith("if !(|| { static ON") and text.endswith("})() && full {"), text)

    def test_the_switch_compiles_and_switches(self):
        program = """fn main() {
            let both = { MUTANT_ON && !MUTANT_ON.then_some(false).unwrap_or(false) };
            std::process::exit(if MUTANT_ON { 6 + i32::from(both) } else { 0 })
        }"""
        source = self.mutate("BODY", ("on-here", "BODY", program))
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory)
            (path / "main.rs").write_text(source)
            compiler = ["rustc", "--edition", "2024", "-D", "warnings", "-o", path / "main", path / "main.rs"]
            subprocess.run(compiler, check=True)
            for value, code in (("on-here", 7), ("elsewhere", 0)):
                environment = os.environ | {mutants.VARIABLE: value}
                done = subprocess.run([path / "main"], env=environment, check=False)
                self.assertEqual(done.returncode, code)

    def test_files_are_edited_together(self):
        table = read(entry("a", "x", "MUTANT_ON") + entry("b", "y", "MUTANT_ON"))
        changed = mutants.mutated_files(table, {"a.rs": "x y"}.__getitem__)
        self.assertEqual(changed["a.rs"].count("static ON"), 2)


class CopyTest(unittest.TestCase):
    def test_copy_keeps_what_is_right_and_removes_what_is_gone(self):
        with tempfile.TemporaryDirectory() as directory:
            root, tree = Path(directory, "root"), Path(directory, "tree")
            (root / "src").mkdir(parents=True)
            for name in ("same", "edited", "gone"):
                (root / "src" / name).write_text(name)
            with mock.patch.object(mutants, "ROOT", root):
                mutants.copy_workspace(tree, {})
                os.utime(tree / "src/same", (1, 1))
                (root / "src/gone").unlink()
                mutants.copy_workspace(tree, {"src/edited": "mutated"})
            self.assertEqual((tree / "src/edited").read_text(), "mutated")
            self.assertEqual((tree / "src/same").stat().st_mtime, 1)
            self.assertFalse((tree / "src/gone").exists())
            self.assertEqual((root / "src/edited").read_text(), "edited", "the original is untouched")


    def test_the_copy_has_a_version_of_its_own(self):
        manifest = '[workspace.package]\nversion = "0.1.0"\n\n[dependencies]\nx = { version = "1" }\n'
        self.assertEqual(mutants.renamed(manifest), manifest.replace('"0.1.0"', '"0.1.0+mutants"'))
        with self.assertRaises(mutants.MutantError):
            mutants.renamed("[workspace]\n")


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


if __name__ == "__main__":
    unittest.main()
