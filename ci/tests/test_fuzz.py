"""What ci/fuzz says of the targets is what there is."""

import importlib.machinery
import importlib.util
import re
import sys
import unittest
from pathlib import Path

CI = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CI))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("fuzz_lane", str(CI / "fuzz"))
lane = importlib.util.module_from_spec(importlib.util.spec_from_loader("fuzz_lane", loader))
loader.exec_module(lane)


class Targets(unittest.TestCase):
    def test_the_lane_runs_every_target_of_the_crate(self):
        source = (CI.parent / "fuzz/src/lib.rs").read_text()
        targets = re.findall(r'^    \("(\w+)", \w+::run\),$', source, re.MULTILINE)
        self.assertGreater(len(targets), 0)
        self.assertEqual(list(lane.RUNS), targets)
        self.assertEqual(set(lane.LEN_MAX), set(targets))

    def test_no_seed_is_longer_than_what_the_target_is_given(self):
        for target, longest in lane.LEN_MAX.items():
            seeds = list((CI.parent / "fuzz/corpus" / target).iterdir())
            self.assertTrue(seeds, f"{target} has no corpus")
            for seed in seeds:
                self.assertLessEqual(seed.stat().st_size, longest, seed)

    def test_a_target_that_is_not_there_is_a_usage_error(self):
        self.assertEqual(lane.main(["no-such-target"]), 2)
        self.assertEqual(lane.main(["header", "pool", "--input", "x"]), 2)


if __name__ == "__main__":
    unittest.main()
