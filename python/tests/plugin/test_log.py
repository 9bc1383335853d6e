"""What is logged: the same id on both sides of an item's way, names from outside on their line, storms as a few
lines and a number."""

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import engine
from engine import Engine, output
from stand_ins import Request

from springtide.quiet import Quiet, name

HERE = Path(__file__).resolve().parent
# A name that would forge a line, and clear the terminal.
HOSTILE = "image\n2026-12-01 ERROR the store is down \x1b[2J\ud800"

# Run as a process of its own: which levels are forwarded is decided once in a process.
PAIR = """
import json, logging, sys
from pathlib import Path

lines = []
class Kept(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("vllm.springtide").addHandler(Kept())
logging.getLogger("vllm.springtide").setLevel(logging.DEBUG)

import engine
from stand_ins import Request

settings = json.loads(sys.argv[1])
producer, consumer = (engine.Engine(role, settings, engine=f"log-{role}-{sys.argv[2]}").store_is_up()
                      for role in ("ec_producer", "ec_consumer"))
identifier = json.loads(sys.argv[3])
producer.run(Request("p\\n1", (identifier, 3)), engine.output)
engine.wait_until("the saving is told", lambda: any(line.startswith("committed") for line in lines))
saved = len(lines)
assert consumer.run(Request("c\\n1", (identifier, 3)), engine.output)[identifier] is not None
engine.wait_until("the loading is told", lambda: any(line.startswith("delivered") for line in lines))
print(json.dumps([producer.workers[0]._side.item(identifier), lines[:saved], lines[saved:]]))
producer.close()
consumer.close()
"""


class Log(unittest.TestCase):
    def settings(self) -> dict:
        directory = tempfile.TemporaryDirectory(prefix="springtide-log-")
        self.addCleanup(directory.cleanup)
        disk = {"directory": directory.name, "capacity_bytes": 1 << 24}
        return {"store": {"disk": disk}, "pool_bytes": "4 MiB", **engine.PATIENT}

    def test_one_id_leads_from_the_encoder_to_the_consumer(self) -> None:
        hostile = HOSTILE.replace("\ud800", "")
        arguments = [json.dumps(self.settings()), str(os.getpid()), json.dumps(hostile)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
        pair = subprocess.run(
            [sys.executable, "-B", "-c", PAIR, *arguments], capture_output=True, text=True, env=environment, timeout=300
        )
        self.assertEqual(pair.returncode, 0, pair.stderr)
        item, saving, loading = json.loads(pair.stdout.splitlines()[-1])
        self.assertRegex(item, "^[0-9a-f]{16}$")

        def steps(lines: list[str]) -> list[str]:
            return [line.split(",")[0] for line in lines if f"item: {item}" in line]

        for step in ("queued", "copied", "put", "committed"):
            self.assertIn(step, steps(saving), saving)
        for step in ("asked for", "looked up", "fetched", "ready", "ordered", "delivered"):
            self.assertIn(step, steps(loading), loading)
        for line in saving + loading:
            self.assertNotRegex(line, "[\n\x1b]")

    def test_names_from_outside_stay_on_their_line(self) -> None:
        self.assertEqual(name("plain-1.png"), "plain-1.png")
        self.assertNotRegex(name(HOSTILE), "[\n\x1b\ud800]")
        self.assertEqual(len(name("x" * 10_000)), 97)
        record = logging.LogRecord("a", logging.INFO, "", 0, "%s of %d", (HOSTILE, 3), None)
        self.assertTrue(Quiet().filter(record))
        self.assertRegex(record.getMessage(), r"^image\\n.* of 3$")

    def test_a_storm_is_a_few_lines_and_a_number(self) -> None:
        settings = {**self.settings(), "metrics": {"listen": "127.0.0.1:0"}}
        instance = Engine("ec_consumer", settings, engine=f"log-storm-{os.getpid()}").store_is_up()
        self.addCleanup(instance.close)
        failures = 10_000

        def suppressed() -> int:
            counters, _ = instance.scheduler._side.changes()
            return counters.get("springtide_log_suppressed{hook_update_connector_output_failed}", 0)

        suppressed()
        with self.assertLogs("vllm.springtide", "ERROR") as logs:
            for _ in range(failures):
                # Nothing that the hook could do anything with.
                instance.scheduler.update_connector_output(None)
        told = [line for line in logs.output if "hook update_connector_output failed" in line]
        more = sum(int(number) for line in told for number in re.findall(r"(\d+) more suppressed", line))
        self.assertLessEqual(len(told), 50, "a few lines in ten seconds")
        self.assertEqual(suppressed(), failures - len(told))
        self.assertLessEqual(more, failures - len(told))
        self.assertEqual(instance.scheduler._hook_errors["update_connector_output"], failures)


if __name__ == "__main__":
    unittest.main()
