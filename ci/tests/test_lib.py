"""Tests of ci/lib.sh."""

import os
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Two tests; as a test program it lists those with one of the words in their name.
PROGRAM = """
program() {
    local name word words=()
    [[ ${!#} == --list ]] || return 9
    shift
    for word in "${@:1:$#-1}"; do [[ $word == -* ]] || words+=("$word"); done
    for name in pool::fills pool::empties; do
        for word in "${words[@]:-}"; do
            [[ $name != *"$word"* ]] || { echo "$name: test"; break; }
        done
    done
    printf '\\n2 tests, 0 benchmarks\\n'
}
"""


def bash(text, **environment):
    script = f"set -euo pipefail\n. ci/lib.sh\n{PROGRAM}\n{text}\necho went on"
    settings = {"cwd": ROOT, "env": os.environ | environment, "capture_output": True, "text": True}
    done = subprocess.run(["bash", "-c", script, "ci/example"], timeout=60, check=False, **settings)
    return done.returncode, done.stdout, done.stderr


class NeedTests(unittest.TestCase):
    def test_a_name_of_a_test_goes_on(self):
        for words in ("-- fills", "-- pool", "--", "", "-- fills nope", "-- --nocapture empties"):
            self.assertEqual(bash(f"need_tests program {words}"), (0, "went on\n", ""), words)

    def test_a_name_of_none_is_refused_with_those_that_there_are(self):
        code, output, errors = bash("need_tests program -- nope")
        self.assertEqual((code, output), (2, ""))
        self.assertIn("expected the name of a test or a part of it, got nope\n", errors)
        self.assertIn("The tests are:\n    pool::fills\n    pool::empties\n", errors)

    def test_a_program_that_fails_is_no_program_without_tests(self):
        code, output, errors = bash("broken() { echo why >&2; return 101; }\nneed_tests broken -- nope")
        self.assertEqual((code, output, errors), (101, "", "why\n"))


class Steps(unittest.TestCase):
    def test_a_step_says_what_runs_and_that_it_was_well(self):
        code, output, _ = bash("two() { echo one; echo two; }\nstep Title two with words")
        self.assertEqual(code, 0)
        self.assertRegex(output, r"^\n==> Title\n    two with words\none\ntwo\n    ok: Title \(\d+ s\)\nwent on\n$")

    def test_a_failure_ends_the_step_and_the_script_wherever_it_is(self):
        for body in ("false; echo no", "x=$(false); echo no", "(exit 1); echo no", "true | false | true; echo no"):
            code, output, _ = bash(f"failing() {{ {body}; }}\nstep Title failing")
            self.assertEqual(code, 1, body)
            self.assertRegex(output, r"^\n==> Title\n    failing\n    FAILED: Title \(exit 1, \d+ s\)\n$", body)
        code, output, _ = bash("fails() { exit 7; }\nstep Title fails")
        self.assertEqual(code, 7)
        self.assertIn("FAILED: Title (exit 7,", output)


class Tools(unittest.TestCase):
    def test_a_missing_compiler_is_named_with_advice(self):
        code, output, errors = bash("PATH=/nowhere\nneed_compiler")
        self.assertEqual((code, output), (1, ""))
        self.assertIn("cc is not in PATH", errors)
        self.assertIn("Debian: gcc", errors)


if __name__ == "__main__":
    unittest.main()
