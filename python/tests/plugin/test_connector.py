"""The connector between a producer and a consumer, over a store on disk."""

import os
import shutil
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import engine
from engine import Engine, output, wait_until
from stand_ins import Request, Tensor

NAMES = [
    "0123456789abcdef" * 4,
    "adapter:0123456789abcdef",
    "a/../b",
    "bild von der käserei №1",
    "x" * (1 << 20),
    "new\nline\0nul",
]


class OverDisk(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="springtide-plugin-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.engines: list[Engine] = []
        self.addCleanup(lambda: [instance.close() for instance in self.engines])

    def settings(self, **more: object) -> dict:
        disk = {"directory": str(self.directory), "capacity_bytes": 1 << 24}
        return {"store": {"disk": disk}, "pool_bytes": 1 << 22, **engine.PATIENT, **more}

    def engine(self, role: str, **changes: object) -> Engine:
        name = f"{os.getpid()}-{self.id()}-{len(self.engines)}"
        settings = self.settings(**changes.pop("settings", {}))
        instance = Engine(role, settings, engine=name, **changes)
        self.engines.append(instance)
        return instance.store_is_up()

    def objects(self) -> list[Path]:
        return [path for path in self.directory.rglob("*") if path.is_file() and path.stat().st_size > 64]

    def test_a_consumer_gets_what_a_producer_saved(self) -> None:
        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        for number, name in enumerate(NAMES):
            request = Request(f"r{number}", (name, 3))
            made = producer.run(request, output)
            got = consumer.run(request, self.fail)
            self.assertEqual(got[name].content(), made[name].content())
            self.assertEqual((got[name].shape, str(got[name].dtype)), ((3, 8), "torch.bfloat16"))
        counters = consumer.counters()
        self.assertEqual((counters["lookups"], counters["hits"]), (len(NAMES), len(NAMES)))
        self.assertEqual(producer.counters()["stored"], len(NAMES))
        self.assertEqual(consumer.gauges()["orders"], 0)
        self.assertEqual(consumer.gauges()["requests"], 0)

    def test_two_items_and_a_repeated_one(self) -> None:
        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        producer.run(Request("p", ("a", 3), ("b", 5)), lambda name: output(name, 3 if name == "a" else 5))
        got = consumer.run(Request("r1", ("a", 3), ("b", 5)), self.fail)
        self.assertEqual(got["b"].content(), output("b", 5).content())
        consumer.drop("a", "b")
        consumer.step()
        shutil.rmtree(self.directory / "objects", ignore_errors=True)
        got = consumer.run(Request("r2", ("a", 3)), self.fail)
        self.assertEqual(got["a"].content(), output("a").content())
        self.assertEqual(consumer.counters()["resident_hits"], 1, "it lay in the pool")

    def test_what_nobody_saved_is_encoded(self) -> None:
        consumer = self.engine("ec_consumer")
        got = consumer.run(Request("r", ("a", 3)), output)
        self.assertEqual(got["a"].content(), output("a").content())
        self.assertEqual(consumer.counters()["misses.absent"], 1)

    def test_what_is_computed_already_is_not_asked_for(self) -> None:
        consumer = self.engine("ec_consumer")
        request = Request("r", ("a", 3), ("b", 3))
        # The first item ends at 4: a prefix cache, or a chunk, has it. While decoding nothing is left.
        self.assertTrue(consumer.scheduler.ensure_cache_available(request, 100))
        self.assertEqual(consumer.counters()["lookups"], 0)
        wait_until("b is decided", lambda: consumer.scheduler.ensure_cache_available(request, 4))
        self.assertEqual(consumer.counters()["lookups"], 1)
        self.assertIsNone(consumer.scheduler._side.why_local("r", "a"))
        self.assertEqual(consumer.scheduler._side.why_local("r", "b"), "absent")

    def test_layouts_and_sizes(self) -> None:
        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        producer.run(Request("p1", ("gaps", 3)), lambda name: output(name).with_gaps())
        self.assertEqual(consumer.run(Request("c1", ("gaps", 3)), self.fail)["gaps"].content(), output("gaps").content())
        producer.run(Request("p2", ("none", 0)), lambda name: Tensor((0, 8), engine.TORCH.bfloat16))
        self.assertEqual(producer.counters()["dropped.empty"], 1)
        producer.run(Request("p3", ("wide", 3)), lambda name: Tensor((3, 9), engine.TORCH.bfloat16))
        self.assertEqual(producer.counters()["dropped.wrong_spec"], 1, "not as wide as the namespace says")
        elsewhere = output("gpu")
        elsewhere.device.type = "cuda"
        producer.run(Request("p4", ("gpu", 3)), lambda name: elsewhere)
        self.assertEqual(consumer.run(Request("c4", ("gpu", 3)), self.fail)["gpu"].content(), output("gpu").content())

    def test_every_rank_copies_before_the_memory_is_given_back(self) -> None:
        producer, consumer = self.engine("ec_producer", ranks=2), self.engine("ec_consumer", ranks=2)
        producer.run(Request("p", ("a", 3)), output)
        self.assertEqual(producer.counters()["opened"], 1, "rank 0 alone saves")
        request = Request("r", ("a", 3))
        wait_until("the item is there", lambda: consumer.schedule(request))
        consumer.step(ranks=[0])
        self.assertEqual(consumer.gauges()["orders"], 1, "rank 1 has not copied")
        consumer.step()
        self.assertEqual(consumer.gauges()["orders"], 0)
        self.assertEqual([cache["a"].content() for cache in consumer.caches], [output("a").content()] * 2)

    def test_an_order_that_is_sent_again_is_copied_once(self) -> None:
        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        producer.run(Request("p", ("a", 3)), output)
        request = Request("r", ("a", 3))
        wait_until("the item is there", lambda: consumer.schedule(request))
        plans = [consumer.scheduler._side.build_step([]) for _ in range(2)]
        worker = consumer.workers[0]
        for plan, copies in zip(plans, (1, 0), strict=True):
            cache: dict = {}
            worker.bind_connector_metadata(engine.CONNECTOR.SpringtideMetadata(plan))
            worker.start_load_caches(cache)
            self.assertEqual(len(cache), copies)
            self.assertIsNotNone(worker.build_connector_worker_meta(), "acknowledged each time")

    def test_an_aborted_request_gives_its_lease_back(self) -> None:
        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        producer.run(Request("p", ("a", 3)), output)
        request = Request("r", ("a", 3))
        wait_until("it is promised", lambda: consumer.scheduler.ensure_cache_available(request, 0))
        self.assertEqual(consumer.gauges()["requests"], 1)
        consumer.scheduler.request_finished(request)
        self.assertEqual(consumer.gauges()["requests"], 0)
        self.assertFalse(consumer.scheduler.has_cache_item("a"), "nobody holds it any more")

    def test_an_item_that_the_store_lost_is_published_again(self) -> None:
        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        producer.run(Request("p1", ("a", 3)), output)
        lost = self.objects()
        self.assertEqual(len(lost), 1)
        lost[0].unlink()
        # The engine still holds it, so it is not encoded again.
        producer.run(Request("p2", ("a", 3)), self.fail)
        self.assertEqual(consumer.run(Request("r", ("a", 3)), self.fail)["a"].content(), output("a").content())
        producer.run(Request("p3", ("a", 3)), self.fail)
        self.assertEqual(producer.counters()["already_there"], 1, "still there: one lookup")

    def test_a_producer_encodes_what_another_has_encoded_unless_told_otherwise(self) -> None:
        one, two = self.engine("ec_producer"), self.engine("ec_producer")
        once = self.engine("ec_producer", settings={"encode_once": True}, ranks=2)
        encoded: list[str] = []
        one.run(Request("p1", ("a", 3)), output)
        two.run(Request("p2", ("a", 3)), lambda name: encoded.append(name) or output(name))
        self.assertEqual(encoded, ["a"])
        got = once.run(Request("p3", ("a", 3)), self.fail)
        self.assertEqual(got["a"].content(), output("a").content(), "the bytes are there, not a promise alone")
        self.assertEqual(once.caches[1], {}, "rank 0 alone saves, so it alone loads")
        self.assertEqual(once.gauges()["orders"], 0)
        once.run(Request("p4", ("b", 3)), output)
        self.assertEqual(once.counters()["stored"], 1, "what nobody has encoded is encoded and saved")
        loads = once.scheduler._side.counters()
        self.assertEqual((loads["hits"], loads["misses.absent"], loads["acknowledged"]), (1, 1, 1))

    def test_what_was_not_encoded_again_is_published_again_when_the_store_loses_it(self) -> None:
        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        once = self.engine("ec_producer", settings={"encode_once": True})
        producer.run(Request("p1", ("a", 3)), output)
        once.run(Request("p2", ("a", 3)), self.fail)
        (lost,) = self.objects()
        lost.unlink()
        once.run(Request("p3", ("a", 3)), self.fail)
        self.assertEqual(once.counters()["stored"], 1)
        self.assertEqual(consumer.run(Request("r", ("a", 3)), self.fail)["a"].content(), output("a").content())

    def test_a_producers_load_keeps_its_memory_until_its_step_has_ended(self) -> None:
        producer = self.engine("ec_producer")
        once = self.engine("ec_producer", settings={"encode_once": True})
        producer.run(Request("p1", ("a", 3)), output)
        request, scheduler = Request("p2", ("a", 3)), once.scheduler
        # With asynchronous scheduling the step before is still under way.
        before = SimpleNamespace(free_encoder_mm_hashes=[])
        scheduler.build_connector_meta(before)
        wait_until("the item is there", lambda: once.schedule(request))
        scheduler.build_connector_meta(before)
        scheduler.request_finished(request)
        scheduler.take_unavailable_requests()
        self.assertEqual(once.gauges()["orders"], 1, "that was the step before")
        scheduler.take_unavailable_requests()
        self.assertEqual(once.gauges()["orders"], 0)

    def test_damaged_and_foreign_objects_are_encoded_locally_and_removed(self) -> None:
        def truncate(path: Path) -> None:
            path.write_bytes(path.read_bytes()[:-5])

        def flip(path: Path) -> None:
            content = bytearray(path.read_bytes())
            content[-3] ^= 0x40
            path.write_bytes(content)

        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        producer.run(Request("p", ("other", 3)), output)
        other = self.objects()[0].read_bytes()
        for number, damage in enumerate((truncate, flip, lambda path: path.write_bytes(other))):
            before, name = set(self.objects()), f"item-{number}"
            producer.run(Request(f"p{number}", (name, 3)), output)
            (path,) = set(self.objects()) - before
            damage(path)
            encoded: list[str] = []
            consumer.run(Request(f"r{number}", (name, 3)), lambda name: encoded.append(name) or output(name))
            self.assertEqual(encoded, [name])
            wait_until("it is removed", lambda: not path.exists())
        rejected = {name for name in consumer.counters() if name.startswith("misses.rejected")}
        self.assertEqual(len(rejected), 3, rejected)

    def test_one_instance_can_do_both(self) -> None:
        one, two = self.engine("ec_both"), self.engine("ec_both")
        one.run(Request("r1", ("a", 3)), output)
        self.assertEqual(two.run(Request("r2", ("a", 3)), self.fail)["a"].content(), output("a").content())

    def test_wait_for_save_has_its_old_name(self) -> None:
        producer = self.engine("ec_producer")
        worker = producer.workers[0]
        worker.save_caches(encoder_cache={"a": output("a")}, mm_hash="a")
        self.assertIsNone(worker.wait_for_save())
        self.assertEqual(producer.counters()["stored"], 1)
        self.assertEqual(len(self.objects()), 1)

    def test_a_response_names_the_namespace_and_a_consumer_compares_it(self) -> None:
        producer, consumer = self.engine("ec_producer"), self.engine("ec_consumer")
        other = self.engine("ec_consumer", model={"model": "another"})
        request = Request("p", ("a", 3))
        producer.run(request, output)
        delay, items = producer.scheduler.request_finished(request)
        self.assertFalse(delay)
        self.assertEqual(items["a"]["item_indices"], [0])
        with self.assertNoLogs("vllm.springtide", "ERROR"):
            consumer.run(Request("r1", ("a", 3), ec_transfer_params=items), self.fail)
        with self.assertLogs("vllm.springtide", "ERROR") as logs:
            for number in range(3):
                other.run(Request(f"r{number}", (f"b{number}", 3), ec_transfer_params=items), output)
        self.assertEqual(len(logs.output), 1, "once")
        self.assertIn(items["a"]["springtide"], logs.output[0])

    def test_a_region_that_cannot_be_had_fails_the_start(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "springtide: pool: cannot reserve memory for /dev/shm/.*"):
            self.engine("ec_consumer", settings={"pool_bytes": 1 << 45})


if __name__ == "__main__":
    unittest.main()
