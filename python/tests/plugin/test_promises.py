"""What holds for every hook, whatever happens below: the list is complete, none raises, none talks to the
store on the engine's thread, none holds the interpreter while it waits, and a store that is down is no end."""

import inspect
import json
import os
import socket
import sys
import threading
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import engine
import fake_mooncake
import hooks
import stand_ins
from engine import Engine, output, wait_until
from stand_ins import Request, Role

import springtide.plugin

STORE = fake_mooncake.install()
CONNECTOR = engine.CONNECTOR.SpringtideConnector


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Master:
    """Something that answers where the master should be: it hangs up on everybody."""

    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                self.listener.accept()[0].close()
            except OSError:
                return

    def close(self) -> None:
        # Wakes the accept; `close` alone does not.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def settings(port: int, **more: Any) -> dict:
    mooncake = {"master": f"127.0.0.1:{port}", "probe_timeout_ms": 500}
    return {"store": {"mooncake": mooncake}, "pool_bytes": 1 << 22, **engine.PATIENT, **more}


class Hooks(unittest.TestCase):
    def test_every_hook_is_implemented_or_knowingly_inherited(self) -> None:
        recorded = set(hooks.recorded()["hooks"])
        implemented = recorded & set(vars(CONNECTOR))
        inherited = set(engine.CONNECTOR.INHERITED)
        self.assertEqual(implemented | inherited, recorded)
        self.assertEqual(implemented & inherited, set())
        self.assertIn("wait_for_save", vars(CONNECTOR), "for runners that call it by name")

    def test_parameters_are_the_recorded_ones(self) -> None:
        for name, recorded in hooks.recorded()["hooks"].items():
            if name in vars(CONNECTOR) and recorded["kind"] != "property":
                ours = inspect.signature(getattr(CONNECTOR, name), follow_wrapped=True).parameters
                theirs = [parameter.lstrip("*") for parameter in recorded["parameters"]]
                theirs = theirs[1:] if recorded["kind"] == "classmethod" else theirs
                self.assertEqual(list(ours), theirs, name)

    def test_a_new_hook_is_seen(self) -> None:
        before = hooks.recorded()["hooks"]
        self.assertEqual(hooks.differences(before, before), [])
        now = {**before, "prefetch": {"kind": "method", "parameters": ["self"]}}
        del now["shutdown"]
        now["get_finished"] = {"kind": "method", "parameters": ["self"]}
        told = hooks.differences(before, now)
        self.assertEqual([line.split(":")[0] for line in told[:2]], ["new hook prefetch", "hook shutdown is gone"])
        self.assertTrue(told[2].startswith("hook get_finished was"), told)

    def test_vllm_learns_the_name(self) -> None:
        known: dict[str, tuple] = {}

        class Factory:
            @staticmethod
            def register_connector(name: str, module: str, class_name: str) -> None:
                if name in known:
                    raise ValueError("already registered")
                known[name] = (module, class_name)

        import sys
        import types

        module = types.ModuleType("vllm.distributed.ec_transfer.ec_connector.factory")
        module.ECConnectorFactory = Factory
        sys.modules[module.__name__] = module
        springtide.plugin.register()
        springtide.plugin.register()
        self.assertEqual(known, {"SpringtideConnector": ("springtide.vllm", "SpringtideConnector")})


class Promises(unittest.TestCase):
    def setUp(self) -> None:
        STORE.objects.clear()
        STORE.callers.clear()
        STORE.failure = 0
        STORE.gate.set()
        self.number = 0

    def engine(self, role: str, port: int, **more: Any) -> Engine:
        self.number += 1
        name = f"{os.getpid()}-{self.id()}-{self.number}"
        instance = Engine(role, settings(port, **more), engine=name)
        self.addCleanup(instance.close)
        return instance

    def master(self, port: int = 0) -> Master:
        master = Master(port)
        self.addCleanup(master.close)
        return master

    def test_no_hook_raises(self) -> None:
        """Each gets what it can do nothing with; each returns what its type says."""
        instance = self.engine("ec_both", self.master().port)
        nothing, scheduler, worker = object(), instance.scheduler, instance.workers[0]
        expected = [
            (scheduler.ensure_cache_available, (nothing, 0), True),
            (scheduler.has_cache_item, (nothing,), False),
            (scheduler.update_state_after_alloc, (nothing, 0), None),
            (scheduler.update_connector_output, (nothing,), None),
            (scheduler.request_finished, (nothing,), (False, None)),
            (scheduler.take_unavailable_requests, (), set()),
            (scheduler.has_pending_push_work, (), False),
            (worker.bind_connector_metadata, (SimpleNamespace(plan="{"),), None),
            (worker.save_caches, ({}, "absent"), None),
            (worker.get_finished, ({"r"},), (None, None)),
            (worker.build_connector_worker_meta, (), None),
        ]
        with self.assertLogs("vllm.springtide", "ERROR") as logs:
            for hook, arguments, value in expected:
                self.assertEqual(hook(*arguments), value, hook.__name__)
            self.assertIsInstance(scheduler.build_connector_meta(nothing), engine.CONNECTOR.SpringtideMetadata)
            worker.start_save_caches(encoder_cache=nothing)
        self.assertIn("hook ensure_cache_available failed (1 times so far)", logs.output[0])
        request = Request("after", ("a", 3))
        self.assertTrue(instance.store_is_up().run(request, output), "it goes on working")

    def test_a_panic_below_does_not_reach_the_engine(self) -> None:
        class Panic(BaseException):
            """As the extension module's: no `Exception`."""

        def panic(*arguments: Any) -> Any:
            raise Panic

        instance = self.engine("ec_consumer", self.master().port)
        side, instance.scheduler._scheduler = instance.scheduler._scheduler, SimpleNamespace(ensure_available=panic)
        with self.assertLogs("vllm.springtide", "ERROR"):
            self.assertTrue(instance.scheduler.ensure_cache_available(Request("r", ("a", 3)), 0))
        instance.scheduler._scheduler = side

    def test_the_store_is_never_called_on_the_engines_thread(self) -> None:
        port = self.master().port
        producer = self.engine("ec_producer", port).store_is_up()
        consumer = self.engine("ec_consumer", port).store_is_up()
        producer.run(Request("p", ("a", 3)), output)
        consumer.run(Request("r", ("a", 3)), self.fail)
        consumer.run(Request("s", ("b", 3)), output)
        producer.close()
        consumer.close()
        called = {method for method, _ in STORE.callers}
        self.assertLessEqual({"setup", "register", "put", "get", "exists", "size", "close"}, called)
        on_this_thread = [method for method, thread in STORE.callers if thread == threading.get_ident()]
        self.assertEqual(on_this_thread, [])

    def test_waiting_lets_go_of_the_interpreter(self) -> None:
        """The put that the wait waits for ends when another thread of Python has run."""
        producer = self.engine("ec_producer", self.master().port).store_is_up()
        STORE.gate.clear()

        def open_the_gate() -> None:
            wait_until("the put runs", lambda: any(method == "put" for method, _ in STORE.callers))
            STORE.gate.set()

        opener = threading.Thread(target=open_the_gate)
        opener.start()
        producer.run(Request("p", ("a", 3)), output)
        opener.join()
        self.assertEqual(producer.counters()["stored"], 1)

    def test_a_wait_ends_at_its_deadline(self) -> None:
        producer = self.engine("ec_producer", self.master().port, wait_for_save_ms=20).store_is_up()
        STORE.gate.clear()
        with self.assertLogs("vllm.springtide", "WARNING") as logs:
            producer.run(Request("p", ("a", 3)), output)
        self.assertTrue(any("timed out" in line for line in logs.output), logs.output)
        STORE.gate.set()
        wait_until("it is readable all the same", lambda: producer.counters()["late"] == 1)

    def test_a_store_that_is_down_at_the_start_is_no_end(self) -> None:
        port = closed_port()
        # What failed is not remembered, so that the recovery shows at once.
        loads = {"deadline_ms": 60_000, "failed_ttl_ms": 0}
        producer, consumer = self.engine("ec_producer", port), self.engine("ec_consumer", port, loads=loads)
        made = producer.run(Request("p", ("a", 3)), output)
        got = consumer.run(Request("r", ("a", 3)), output)
        self.assertEqual(got["a"].content(), made["a"].content())
        self.assertEqual(producer.counters()["failed.UNAVAILABLE_IN_CURRENT_MODE (-1011)"], 1)
        self.assertEqual(consumer.counters()["misses.UNAVAILABLE_IN_CURRENT_MODE (-1011)"], 1)
        self.assertEqual(STORE.callers, [], "the class is not even made")
        # It comes up, and everything works without a restart.
        self.master(port)
        producer.store_is_up()
        consumer.store_is_up()
        producer.run(Request("p2", ("a", 3)), self.fail)
        self.assertEqual(consumer.run(Request("r2", ("b", 3)), output)["b"].content(), output("b").content())
        consumer.drop("a")
        consumer.step()
        again = consumer.run(Request("r3", ("a", 3)), self.fail)
        self.assertEqual(again["a"].content(), output("a").content())

    def test_a_store_that_goes_down_is_asked_again_only_when_it_answers(self) -> None:
        consumer = self.engine("ec_consumer", self.master().port).store_is_up()
        STORE.failure = -900
        consumer.run(Request("r1", ("a", 3)), output)
        self.assertFalse(consumer.scheduler._side.store_is_up)
        STORE.failure = 0
        consumer.store_is_up()
        consumer.run(Request("r2", ("b", 3)), output)
        self.assertEqual(consumer.counters()["misses.absent"], 1)

    def test_a_bad_configuration_fails_the_start_in_words(self) -> None:
        def start(changes: dict, **more: Any) -> None:
            config = stand_ins.vllm_config("ec_consumer", {**settings(1), **changes}, **more)
            CONNECTOR(config, Role.SCHEDULER)

        for changes, words in [
            ({"store": {"tape": {}}}, 'store is "tape", expected `disk` or `mooncake`'),
            ({"store": {"disk": {"directory": "/x"}}}, "store.disk.capacity_bytes is missing"),
            ({"pool_byte": 1}, "ec_connector_extra_config: pool_byte is no key, expected one of `store`, `encode_once`, `pool_bytes`"),
            ({"pool_bytes": "4 parsecs"}, 'pool_bytes is "4 parsecs", expected'),
            ({"loads": {"deadline_ms": 10**9}}, "loads.deadline_ms is 1000000000, expected 1 to 60000"),
            ({"payload_checksum": "false"}, 'ec_connector_extra_config: payload_checksum is "false", expected a boolean'),
            ({"saves": {"attempts_max": 0.5}}, "saves.attempts_max is 0.5, expected a whole number, 0 or more"),
            (
                {"loads": {"batch_bytes_max": "2 GiB"}},
                'loads.batch_bytes_max is "2 GiB", expected at most loads.in_flight_bytes_max, 512 MiB',
            ),
            ({"namespace": {"dtype": "float12"}}, 'namespace.dtype is "float12", expected one of float16'),
        ]:
            with self.assertRaises(RuntimeError) as raised:
                start(changes)
            self.assertIn(words, str(raised.exception))
        with mock.patch.dict(os.environ, {"SPRINGTIDE__LOADS__DEADLINE_MS": "soon"}):
            with self.assertRaisesRegex(RuntimeError, r"environment \(SPRINGTIDE__LOADS__DEADLINE_MS\): .* \"soon\""):
                start({})
        # What vLLM itself waits for.
        waits = SimpleNamespace(VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=90)
        with mock.patch.dict(sys.modules, {"vllm.envs": waits}):
            with self.assertRaisesRegex(RuntimeError, "wait_for_save_ms is 90000, expected less than the engine's own 90000"):
                start({"wait_for_save_ms": 90_000})
        with self.assertRaisesRegex(ValueError, "must say where items are kept, such as {"):
            CONNECTOR(stand_ins.vllm_config("ec_consumer", {}), Role.SCHEDULER)
        hf_config = SimpleNamespace(to_dict=dict)
        with self.assertRaisesRegex(RuntimeError, "set namespace.width"):
            start({}, model={"hf_config": hf_config})


class Namespaces(unittest.TestCase):
    def fingerprint(self, overrides: dict | None = None, **model: Any) -> str:
        changes = {"namespace": overrides} if overrides else {}
        config = stand_ins.vllm_config("ec_producer", {**settings(closed_port()), **changes}, model=model)
        connector = CONNECTOR(config, Role.SCHEDULER)
        self.addCleanup(connector.shutdown)
        return connector._side.fingerprint

    def test_all_that_changes_the_bytes_makes_another_namespace(self) -> None:
        def encoder(depth: int) -> SimpleNamespace:
            config = {"vision_config": {"depth": depth, "transformers_version": str(depth)}, "vocab_size": depth}
            return SimpleNamespace(hidden_size=8, to_dict=lambda: json.loads(json.dumps(config)))

        def media(**options: Any) -> SimpleNamespace:
            return SimpleNamespace(mm_processor_kwargs=options)

        deep = SimpleNamespace(deepstack_visual_indexes=[1, 2])
        variants = [
            self.fingerprint(),
            self.fingerprint(model="other"),
            self.fingerprint(revision="r2"),
            self.fingerprint(dtype=stand_ins.DType("float16")),
            self.fingerprint(hf_config=encoder(2)),
            self.fingerprint(hf_config=SimpleNamespace(hidden_size=8, vision_config=deep, to_dict=dict)),
            self.fingerprint(multimodal_config=media(max_pixels=1)),
            self.fingerprint({"adapter": "a@1"}),
            self.fingerprint(quantization="fp8"),
        ]
        self.assertEqual(len(set(variants)), len(variants))
        self.assertEqual(self.fingerprint(), self.fingerprint({"model": "tiny", "width": 8}))
        with mock.patch.dict(os.environ, {"SPRINGTIDE__NAMESPACE__MODEL": "other"}):
            self.assertEqual(self.fingerprint({"model": "tiny"}), variants[1], "the environment wins")
        where = self.fingerprint(multimodal_config=media(device="cuda"))
        self.assertEqual(where, self.fingerprint(multimodal_config=media(device="cpu")))

    def test_weights_are_told_apart(self) -> None:
        import tempfile
        from pathlib import Path

        from springtide.model import SAMPLE, weights_digest

        with tempfile.TemporaryDirectory() as name:
            path = Path(name)
            weights = path / "model.safetensors"
            weights.write_bytes(bytes(3 * SAMPLE))
            before = weights_digest(path)
            (path / "README.md").write_text("says nothing")
            self.assertEqual(weights_digest(path), before)
            for at in (10, 3 * SAMPLE - 10):
                weights.write_bytes(bytes(at) + b"\1" + bytes(3 * SAMPLE - at - 1))
                self.assertNotEqual(weights_digest(path), before)


if __name__ == "__main__":
    unittest.main()
