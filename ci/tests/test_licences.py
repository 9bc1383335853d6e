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


def package(name, licence, source="registry+index"):
    return {"name": name, "version": "1", "license": licence, "source": source}


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
        good = package("good", " AND ".join(sorted(licences.ALLOWED)))
        self.assertEqual(licences.check([good]), [])
        complaints = licences.check([package("bad", "GPL-3.0-only"), good])
        self.assertEqual(len(complaints), 1)
        self.assertRegex(complaints[0], "^bad 1: expected one of .*, got 'GPL-3.0-only'$")
        self.assertIn("MIT: allowed, but nothing needs it", licences.check([package("a", "Apache-2.0")]))

    def test_an_exception_is_for_its_package_only(self):
        good = package("good", " AND ".join(sorted(licences.ALLOWED)))
        ((name, excepted),) = licences.EXCEPTIONS.items()
        licence = f"MIT AND {' AND '.join(excepted)}"
        self.assertEqual(licences.check([good, package(name, licence)]), [])
        self.assertEqual(len(licences.check([good, package("other", licence)])), 1)

    def test_a_package_from_elsewhere_is_named(self):
        good = package("good", " AND ".join(sorted(licences.ALLOWED)))
        elsewhere = package("far", "MIT", source="git+file:///far?rev=1")
        self.assertEqual(
            licences.check([elsewhere, good]), ["far 1: expected it from a registry, got git+file:///far?rev=1"]
        )


if __name__ == "__main__":
    unittest.main()
