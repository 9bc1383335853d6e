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


class Tools(unittest.TestCase):
    def test_a_missing_compiler_is_named_with_advice(self):
        code, output, errors = bash("PATH=/nowhere\nneed_compiler")
        self.assertEqual((code, output), (1, ""))
        self.assertIn("cc is not in PATH", errors)
        self.assertIn("Debian: gcc", errors)


if __name__ == "__main__":
    unittest.main()
