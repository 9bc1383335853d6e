"""Tests of ci/real-store that need no network and no store."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

SCRIPT = Path(__file__).resolve().parent.parent / "real-store"
sys.path.insert(0, str(SCRIPT.parent))
loader = importlib.machinery.SourceFileLoader("real_store", str(SCRIPT))
spec = importlib.util.spec_from_loader("real_store", loader)
real_store = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
loader.exec_module(real_store)


def fake_master(directory, body):
    """A program that stands in for mooncake_master, with `body` as what it does with its port."""
    path = directory / "mooncake_master"
    path.write_text(
        f"#!{sys.executable}\nimport socket, sys, time\n"
        "port = [int(a[11:]) for a in sys.argv if a.startswith('--rpc_port=')][-1]\n" + body
    )
    return path


LISTENS = "s = socket.create_server(('127.0.0.1', port))\nwhile True: s.accept()[0].close()\n"
REFUSES = "print('address in use'); sys.exit(3)\n"


class RealStoreTest(unittest.TestCase):
    def setUp(self):
        # The script leaves the master that it started running: that is its purpose.
        warnings.simplefilter("ignore", ResourceWarning)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        patch = mock.patch.object(real_store, "HOME", Path(directory.name))
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_master_starts_and_stops_by_pid(self):
        program = fake_master(real_store.HOME, LISTENS)
        with mock.patch.object(real_store, "master_program", lambda: program):
            master = real_store.start([])
            port = int(master["address"].split(":")[1])
            self.assertTrue(real_store.accepts(port))
            real_store.stop(master["pid"])
            self.assertFalse(real_store.accepts(port))

    def test_a_master_that_dies_at_its_start_is_shown_with_its_last_words(self):
        program = fake_master(real_store.HOME, REFUSES)
        with mock.patch.object(real_store, "master_program", lambda: program):
            with self.assertRaisesRegex(real_store.Failure, "ended with 3 at its start:\naddress in use"):
                real_store.start([f"--rpc_port={real_store.free_port()}"])

    def test_a_port_in_use_is_told_before_anything_starts(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with mock.patch.object(real_store, "master_program", lambda: real_store.HOME / "nothing"):
                with self.assertRaises(real_store.Failure) as raised:
                    real_store.start([f"--rpc_port={port}"])
        text = str(raised.exception)
        self.assertIn(f"cannot start a master on port {port} of 127.0.0.1: Address already in use.", text)
        self.assertIn("leave --rpc_port out", text)

    def test_another_version_of_the_wheel_is_told(self):
        packages = real_store.HOME / "lib/python3.11/site-packages"
        right = packages / f"mooncake_transfer_engine_non_cuda-{real_store.VERSION}.dist-info"
        for there, told in [
            ([], "found no wheel of Mooncake"),
            (["mooncake_transfer_engine_non_cuda-0.3.5.dist-info"], "found mooncake-transfer-engine-non-cuda-0.3.5"),
            ([right.name, "mooncake_transfer_engine-0.3.6.dist-info"], "found mooncake-transfer-engine-0.3.6 and "),
        ]:
            with self.subTest(there=there):
                for name in there:
                    (packages / name).mkdir(parents=True)
                with self.assertRaises(real_store.Failure) as raised:
                    real_store.need_version()
                text = str(raised.exception)
                self.assertIn(f"expected {real_store.PACKAGE} in {real_store.HOME}", text)
                self.assertIn(told, text)
                self.assertIn("remove the directory", text)
                for name in there:
                    (packages / name).rmdir()
        right.mkdir()
        real_store.need_version()

    def test_another_process_is_left_alone(self):
        other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        self.addCleanup(lambda: (other.stdin.close(), other.wait()))
        with self.assertRaisesRegex(real_store.Failure, "is no mooncake_master"):
            real_store.stop(other.pid)
        self.assertIsNone(other.poll())

    def test_missing_libraries_are_named(self):
        lacks = mock.patch.object(real_store, "LIBRARIES", {"libnowhere.so.1": "libnowhere1"})
        with lacks, mock.patch.object(os, "geteuid", lambda: 1000):
            with self.assertRaisesRegex(real_store.Failure, "apt-get install libnowhere1"):
                real_store.need_libraries()

    def test_another_python_is_refused(self):
        with mock.patch.object(real_store, "PYTHON", (2, 0)):
            with self.assertRaisesRegex(real_store.Failure, "no CPython 2.0 in PATH"):
                real_store.find_python()

    def test_usage(self):
        for arguments in ([], ["stop"], ["stop", "x"], ["install", "more"]):
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(real_store.main(arguments), 2, arguments)
            self.assertIn("ci/real-store install", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
