"""The calls that real vLLM made, again: every answer that mattered must be the same.

The traces are recorded by `python/e2e/record.py` on vLLM 0.32.0: all processes of an encoder and of a decoder
instance, merged by time, with asynchronous scheduling as it was.
"""

import json
import os
import pickle
import shutil
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine import PATIENT, Engine, output, wait_until
from stand_ins import Request

TRACES = Path(__file__).with_name("traces")


def trace(role: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TRACES / f"{role}.jsonl").read_text().splitlines()]


class Replay:
    """Makes recorded calls on an instance of ours."""

    def __init__(self, test: unittest.TestCase, instance: Engine) -> None:
        self.test, self.instance = test, instance
        self.scheduler, self.worker, self.cache = instance.scheduler, instance.workers[0], instance.caches[0]
        self.requests: dict[str, Request] = {}
        self.rows: dict[str, int] = {}
        # By step: what the scheduler built, what left the engine's cache, what the worker answered.
        self.metadata: dict[int, bytes] = {}
        self.freed: dict[int, list[str]] = {}
        self.answers: dict[int, Any] = {}
        self.made: dict[str, int] = {}

    def run(self, calls: list[dict[str, Any]]) -> "Replay":
        for number, call in enumerate(calls):
            hook, arguments = call["hook"], call["arguments"]
            with self.test.subTest(call=number, hook=hook):
                getattr(self, hook)(*arguments, result=call["result"])
            self.made[hook] = self.made.get(hook, 0) + 1
        return self

    def request(self, recorded: dict[str, Any]) -> Request:
        if recorded["request"] not in self.requests:
            items = [(name, rows) for name, rows, _, _ in recorded["items"]]
            request = self.requests[recorded["request"]] = Request(recorded["request"], *items)
            for feature, (_, _, offset, length) in zip(request.mm_features, recorded["items"], strict=True):
                feature.mm_position = SimpleNamespace(offset=offset, length=length)
            self.rows.update(items)
        return self.requests[recorded["request"]]

    # -- scheduler -----------------------------------------------------------------------------------

    def ensure_cache_available(self, request: dict, computed: int, result: bool) -> None:
        ensure = self.scheduler.ensure_cache_available
        again = self.request(request)
        if result:
            wait_until("it is decided", lambda: ensure(again, computed))
        else:
            # Whether it waits depends on how fast the store was.
            ensure(again, computed)

    def has_cache_item(self, identifier: str, result: bool) -> None:
        self.test.assertEqual(self.scheduler.has_cache_item(identifier), result, identifier)

    def update_state_after_alloc(self, request: dict, index: int, result: None) -> None:
        self.test.assertIsNone(self.scheduler.update_state_after_alloc(self.request(request), index))

    def update_state_after_free(self, request: dict, index: int, result: None) -> None:
        self.test.assertIsNone(self.scheduler.update_state_after_free(self.request(request), index))

    def build_connector_meta(self, output: dict, result: dict) -> None:
        scheduled = SimpleNamespace(free_encoder_mm_hashes=output["freed"])
        self.metadata[result["step"]] = pickle.dumps(self.scheduler.build_connector_meta(scheduled))
        self.freed[result["step"]] = output["freed"]

    def update_connector_output(self, answer: dict | None, result: None) -> None:
        answer = self.answers[answer["step"]] if answer else None
        self.scheduler.update_connector_output(SimpleNamespace(ec_connector_worker_meta=answer))

    def request_finished(self, request: dict, result: list) -> None:
        delay, items = self.scheduler.request_finished(self.request(request))
        recorded = [result[0], result[1] and sorted(result[1])]
        self.test.assertEqual([delay, items and sorted(items)], recorded)

    # -- worker --------------------------------------------------------------------------------------

    def bind_connector_metadata(self, metadata: dict, result: bool) -> None:
        self.step = metadata["step"]
        for name in self.freed[self.step]:
            self.cache.pop(name, None)
        bound = pickle.loads(self.metadata[self.step])
        self.test.assertEqual(bound.plan != "", result, "whether the step asks anything of the worker")
        self.worker.bind_connector_metadata(bound)

    def start_save_caches(self, held: list[str], result: list[str]) -> None:
        self.worker.start_save_caches(encoder_cache=self.cache)
        self.test.assertEqual(set(self.cache), set(result))

    def start_load_caches(self, held: list[str], result: list[str]) -> None:
        self.test.assertEqual(set(self.cache), set(held))
        self.worker.start_load_caches(self.cache)
        self.test.assertEqual(set(self.cache), set(result))

    def save_caches(self, held: list[str], identifier: str, result: None) -> None:
        self.cache[identifier] = output(identifier, self.rows[identifier])
        self.worker.save_caches(encoder_cache=self.cache, mm_hash=identifier)

    def get_finished(self, requests: list[str], result: list) -> None:
        self.test.assertEqual(list(self.worker.get_finished(set(requests))), result)

    def build_connector_worker_meta(self, result: dict | None) -> None:
        answer = self.worker.build_connector_worker_meta()
        self.test.assertEqual(answer is not None, result is not None)
        if answer is not None:
            self.answers[self.step] = pickle.loads(pickle.dumps(answer))

    def clear_connector_metadata(self, result: None) -> None:
        self.worker.clear_connector_metadata()


class Traces(unittest.TestCase):
    def test_what_vllm_called_is_answered_as_it_was(self) -> None:
        directory = tempfile.mkdtemp(prefix="springtide-traces-")
        self.addCleanup(shutil.rmtree, directory)
        store = {"disk": {"directory": directory, "capacity_bytes": 1 << 26}}
        settings = {"store": store, "pool_bytes": 1 << 22, **PATIENT}
        replays = {}
        for role in ("ec_producer", "ec_consumer"):
            instance = Engine(role, settings, engine=f"{os.getpid()}-{role}").store_is_up()
            self.addCleanup(instance.close)
            replays[role] = Replay(self, instance).run(trace(role))
        producer, consumer = replays["ec_producer"], replays["ec_consumer"]
        saved = {call["arguments"][1] for call in trace("ec_producer") if call["hook"] == "save_caches"}
        self.assertEqual(producer.instance.counters()["stored"], len(saved))
        loaded = [name for name in consumer.cache if name in saved]
        self.assertGreater(len(loaded), 2)
        for name in loaded:
            made, got = output(name, consumer.rows[name]), consumer.cache[name]
            self.assertEqual(got.content(), made.content())
        self.assertEqual(consumer.instance.gauges()["orders"], 0, "nothing is pinned")
        self.assertEqual(consumer.instance.gauges()["requests"], 0, "no request is remembered")
        # A trace without them would prove nothing.
        for hook in ("has_cache_item", "start_load_caches", "update_connector_output", "request_finished"):
            self.assertGreater(consumer.made.get(hook, 0), 1, hook)


if __name__ == "__main__":
    unittest.main()
