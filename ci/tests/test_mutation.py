"""Tests of ci/mutation.py: the edits and the copy that they are made in."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.dont_write_bytecode = True
import mutation  # noqa: E402


def mutant(name, find, replace):
    return SimpleNamespace(name=name, edits=(mutation.Edit("a.rs", find, replace),))


class EditTest(unittest.TestCase):
    def mutate(self, text, *edits):
        named = [(name, mutation.Edit("a.rs", find, replace)) for name, find, replace in edits]
        return mutation.mutate("a.rs", text, named)

    def refused(self, text, *edits):
        with self.assertRaises(mutation.MutantError) as caught:
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
                environment = os.environ | {mutation.VARIABLE: value}
                done = subprocess.run([path / "main"], env=environment, check=False)
                self.assertEqual(done.returncode, code)

    def test_files_are_edited_together(self):
        both = [mutant("a", "x", "MUTANT_ON"), mutant("b", "y", "MUTANT_ON")]
        changed = mutation.mutated_files(both, {"a.rs": "x y"}.__getitem__)
        self.assertEqual(changed["a.rs"].count("static ON"), 2)


class CopyTest(unittest.TestCase):
    def test_copy_keeps_what_is_right_and_removes_what_is_gone(self):
        with tempfile.TemporaryDirectory() as directory:
            root, tree = Path(directory, "root"), Path(directory, "tree")
            (root / "src").mkdir(parents=True)
            for name in ("same", "edited", "gone"):
                (root / "src" / name).write_text(name)
            with mock.patch.object(mutation, "ROOT", root):
                mutation.copy_workspace(tree, {})
                os.utime(tree / "src/same", (1, 1))
                (root / "src/gone").unlink()
                mutation.copy_workspace(tree, {"src/edited": "mutated"})
            self.assertEqual((tree / "src/edited").read_text(), "mutated")
            self.assertEqual((tree / "src/same").stat().st_mtime, 1)
            self.assertFalse((tree / "src/gone").exists())
            self.assertEqual((root / "src/edited").read_text(), "edited", "the original is untouched")


    def test_the_copy_has_a_version_of_its_own(self):
        manifest = '[workspace.package]\nversion = "0.1.0"\n\n[dependencies]\nx = { version = "1" }\n'
        self.assertEqual(mutation.renamed(manifest), manifest.replace('"0.1.0"', '"0.1.0+mutants"'))
        with self.assertRaises(mutation.MutantError):
            mutation.renamed("[workspace]\n")


if __name__ == "__main__":
    unittest.main()
