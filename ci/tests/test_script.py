"""Tests of ci/script.py: how the scripts of ci/ end."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

CI = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CI))
sys.dont_write_bytecode = True
import script  # noqa: E402

LIMIT_S = 60


def ends(body, **streams):
    """How a script with this `main` ends: exit code and what it said on stderr."""
    text = f"import os, subprocess, sys\nimport script\n\ndef main(arguments):\n{textwrap.indent(body, '    ')}\n"
    command = [sys.executable, "-B", "-c", text + "script.run('ci/example', main)"]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | streams
    child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(CI)}, **settings)
    return child


def finish(child):
    output, errors = child.communicate(timeout=LIMIT_S)
    return child.returncode, output, errors


class Endings(unittest.TestCase):
    def test_the_verdict_is_the_exit_code(self):
        for body, code, errors in [
            ("return 0", 0, ""),
            ("return 1", 1, ""),
            ("sys.exit(2)", 2, ""),
            ("sys.exit('why')", 1, "why\n"),
        ]:
            self.assertEqual(finish(ends(body)), (code, "", errors), body)

    def test_what_could_not_be_done_is_one_line(self):
        for body, said in [
            ("open('/no/such/file')", "/no/such/file: No such file or directory"),
            ("subprocess.run(['no-such-program'])", "no-such-program: No such file or directory"),
            ("subprocess.run(['sh', '-c', 'exit 3'], check=True)", "`sh -c 'exit 3'` ended with exit code 3"),
            ("subprocess.run('echo why >&2; false', shell=True, check=True, stderr=subprocess.PIPE)",
             "`echo why >&2; false` ended with exit code 1\nwhy"),
            ("script.call(['sleep', '60'], timeout=0.01)", "`sleep 60` did not end within 0 s"),
        ]:
            self.assertEqual(finish(ends(body)), (2, "", f"ci/example: error: {said}\n"), body)

    def test_a_bug_of_a_script_is_still_shown_with_its_place(self):
        code, _, errors = finish(ends("return {}['key']"))
        self.assertEqual(code, 1)
        self.assertIn("KeyError: 'key'", errors)

    def test_a_reader_that_has_seen_enough_is_no_error(self):
        for stream in ("stdout", "stderr"):
            for flush in (True, False):
                child = ends(f"for n in range(20_000):\n    print(n, file=sys.{stream}, flush={flush})\nreturn 1")
                pipe = getattr(child, stream)
                self.assertEqual(pipe.readline(), "0\n")
                pipe.close()
                other = child.stderr if stream == "stdout" else child.stdout
                self.assertEqual(other.read(), "")
                other.close()
                self.assertEqual(child.wait(LIMIT_S), 1)

    @unittest.skipUnless(Path("/dev/full").exists(), "there is no /dev/full here")
    def test_output_that_cannot_be_written_is_one_line(self):
        for body in ("print('text', flush=True)\nreturn 0", "print('text')\nreturn 0", "argparse()"):
            body = body.replace("argparse()", "import argparse; argparse.ArgumentParser().parse_args(['--help'])")
            with open("/dev/full", "w") as full:
                code, _, errors = finish(ends(body, stdout=full))
                self.assertEqual((code, errors), (2, "ci/example: error: cannot print: No space left on device\n"))
                self.assertEqual(finish(ends(body, stdout=full, stderr=full))[0], 2)


class Interruption(unittest.TestCase):
    def test_the_programs_end_too_each_by_its_pid(self):
        # Only the script is sent the signal, as by `kill -INT`.
        for body in (
            "with script.side_by_side() as pool:\n"
            "    list(script.each(pool, lambda n: script.call(['sh', '-c', 'echo $$; exec sleep 600'], stderr=sys.stderr), 'abcdef'))",
            "script.call(['sh', '-c', 'echo $$; exec sleep 600'])",
        ):
            # Whoever runs the tests in the background may ignore the signal, and programs inherit that.
            child = ends(f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{body}")
            pids = [int(child.stdout.readline())]
            child.send_signal(signal.SIGINT)
            code, output, errors = finish(child)
            self.assertEqual((code, errors), (script.INTERRUPTED, ""))
            for pid in pids + list(map(int, output.split())):
                self.assertFalse(runs(pid), f"{pid} outlived the script")

    def test_what_ends_the_block_early_ends_the_programs(self):
        started = time.monotonic()
        body = (
            "with script.side_by_side() as pool:\n"
            "    waits = pool.submit(script.call, ['sleep', '600'])\n"
            "    while not script.children.running: pass\n"
            "    raise OSError(28, 'No space left on device')"
        )
        self.assertEqual(finish(ends(body)), (2, "", "ci/example: error: No space left on device\n"))
        self.assertLess(time.monotonic() - started, LIMIT_S)


def runs(pid):
    """Whether it does, a moment later: an orphan that was ended may wait for somebody to take note."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if " Z " in f" {Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2]}":
                return False
        except (ProcessLookupError, FileNotFoundError):
            return False
        time.sleep(0.05)
    return True


class Everywhere(unittest.TestCase):
    def test_every_python_script_ends_this_way(self):
        scripts = [file for file in CI.iterdir() if file.is_file() and file.read_bytes().startswith(b"#!/usr/bin/env python3")]
        self.assertGreater(len(scripts), 5)
        for file in scripts:
            self.assertTrue(file.read_text().endswith(f'script.run("ci/{file.name}", main)\n'), file)

    def test_every_script_explains_itself_and_does_nothing_else(self):
        with tempfile.TemporaryDirectory() as directory:
            # Nothing that builds, installs or starts anything is to be found.
            for name in ("bash", "python3", "env", "sed", "dirname"):
                os.symlink(which(name), Path(directory, name))
            for name in ("cargo", "git", "pip", "apt-get"):
                Path(directory, name).write_text("#!/bin/sh\necho started $0 $* >&2\nexit 1\n")
                Path(directory, name).chmod(0o755)
            for file in sorted(CI.iterdir()):
                # `ci/just --help` is the help of just.
                if not os.access(file, os.X_OK) or file.is_dir() or file.name == "just":
                    continue
                environment = {"PATH": directory, "CARGO_TARGET_DIR": f"{directory}/target"}
                done = subprocess.run([file, "--help"], env=environment, capture_output=True, text=True, timeout=LIMIT_S)
                self.assertEqual((done.returncode, done.stderr), (0, ""), file.name)
                self.assertGreater(len(done.stdout.splitlines()), 0, file.name)


def which(name):
    found = [Path(place, name) for place in os.environ["PATH"].split(":") if os.access(Path(place, name), os.X_OK)]
    # A version manager's stand-in for python3 needs more than these.
    return sys.executable if name == "python3" else found[0]


class Numbers(unittest.TestCase):
    def test_only_numbers_within_bounds(self):
        read = script.number(float, 1, 5)
        self.assertEqual(read("1.5"), 1.5)
        for text in ("0", "nan", "six", "", "5.1", "-1", "inf"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, f"expected a number from 1 to 5, got '{text}'"):
                read(text)


if __name__ == "__main__":
    unittest.main()
