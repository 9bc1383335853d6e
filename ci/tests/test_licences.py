"""Tests of ci/licences."""

import importlib.machinery
import importlib.util
import sys
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "licences"
sys.path.insert(0, str(SCRIPT.parent))
loader = importlib.machinery.SourceFileLoader("licences", str(SCRIPT))
spec = importlib.util.spec_from_loader("licences", loader)
licences = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
loader.exec_module(licences)


class LicencesTest(unittest.TestCase):
    def test_any_of_an_or_and_all_of_an_and(self):
        for expression, choice in {
            "MIT": {"MIT"},
            "GPL-3.0-only": None,
            "GPL-3.0-only OR MIT": {"MIT"},
            "MIT/Apache-2.0": {"MIT"},
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only": {"Apache-2.0 WITH LLVM-exception"},
            "(MIT OR GPL-2.0-only) AND Unicode-3.0": {"MIT", "Unicode-3.0"},
            "MIT AND GPL-2.0-only": None,
            "MIT AND (GPL-2.0-only OR LGPL-2.1-only)": None,
            "": None,
            "MIT OR": {"MIT"},
            "(MIT": None,
            "MIT MIT": None,
        }.items():
            self.assertEqual(licences.choose(expression), choice, expression)

    def test_what_is_not_allowed_and_what_is_not_needed_is_named(self):
        allowed = " AND ".join(sorted(licences.ALLOWED))
        self.assertEqual(licences.check({"good 1": allowed}), [])
        complaints = licences.check({"good 1": allowed, "bad 2": "GPL-3.0-only"})
        self.assertEqual(len(complaints), 1)
        self.assertRegex(complaints[0], "^bad 2: expected one of .*, got 'GPL-3.0-only'$")
        self.assertIn("MIT: allowed, but nothing needs it", licences.check({"a 1": "Apache-2.0"}))


if __name__ == "__main__":
    unittest.main()
