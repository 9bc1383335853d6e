"""What is counted, on vLLM's metrics and on endpoints of a running pair."""

import os
import re
import shutil
import socket
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import engine
import stand_ins
from engine import Engine, output, wait_until
from stand_ins import Request

CONNECTOR = engine.CONNECTOR.SpringtideConnector
LINE = re.compile(r"^(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<number>\S+)$")


class Page:
    """A page of metrics."""

    def __init__(self, address: str) -> None:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=engine.LIMIT_S) as response:
            assert response.headers["content-type"].startswith("text/plain; version=0.0.4"), response.headers
            self.text = response.read().decode()
        self.series: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in self.text.splitlines():
            if line.startswith("#"):
                continue
            found = LINE.match(line)
            assert found, line
            labels = dict(re.findall(r'([a-z_]+)="([^"]*)"', found["labels"] or ""))
            self.series.setdefault(found["name"], []).append((labels, float(found["number"])))

    def sum(self, name: str, **labels: str) -> float:
        """The sum of a name's series that have these labels."""
        assert name in self.series, f"{name} is missing in {self.text}"
        return sum(number for found, number in self.series[name] if labels.items() <= found.items())


class Metrics(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="springtide-metrics-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.engines: list[Engine] = []
        self.addCleanup(lambda: [instance.close() for instance in self.engines])

    def engine(self, role: str, **changes: object) -> Engine:
        disk = {"directory": str(self.directory), "capacity_bytes": 1 << 24}
        settings = {"store": {"disk": disk}, "pool_bytes": "4 MiB", **engine.PATIENT, **changes.pop("settings", {})}
        instance = Engine(role, settings, engine=f"{os.getpid()}-{self.id()}-{len(self.engines)}", **changes)
        self.engines.append(instance)
        return instance.store_is_up()

    def listening(self, role: str, listen: str = "127.0.0.1:0", **changes: object) -> Engine:
        return self.engine(role, settings={"metrics": {"listen": listen}}, **changes)

    def page(self, connector: object) -> Page:
        return Page(connector._side.metrics_address)

    def check_pool(self, page: Page) -> None:
        self.assertEqual(page.sum("springtide_pool_bytes"), page.sum("springtide_pool_size_bytes"))
        allocated = page.sum("springtide_pool_freed_total") + page.sum("springtide_pool_allocations")
        self.assertEqual(page.sum("springtide_pool_allocated_total"), allocated)

    def test_the_counters_of_a_running_pair_add_up(self) -> None:
        producer, consumer = self.listening("ec_producer"), self.listening("ec_consumer", ranks=2)
        for number in range(5):
            producer.run(Request(f"p{number}", (f"item-{number}", 3)), output)
        producer.run(Request("empty", ("empty", 0)), lambda name: stand_ins.Tensor((0, 8), engine.TORCH.bfloat16))
        for number in range(7):
            consumer.run(Request(f"c{number}", (f"item-{number}", 3)), output)
        consumer.drop("item-0")
        consumer.step()
        consumer.run(Request("again", ("item-0", 3)), self.fail)

        saves, loads = self.page(producer.workers[0]), self.page(consumer.scheduler)
        copies = [self.page(worker) for worker in consumer.workers]
        self.assertEqual(saves.sum("springtide_saves_total", outcome="stored"), 5)
        self.assertEqual(saves.sum("springtide_saves_total", outcome="dropped", reason="empty"), 1)
        ended = saves.sum("springtide_saves_total") + saves.sum("springtide_saves_open")
        self.assertEqual(saves.sum("springtide_saves_opened_total"), ended)
        self.assertEqual(saves.sum("springtide_puts_total"), 5)
        self.assertEqual(saves.sum("springtide_stage_seconds_count", stage="put"), 5)
        self.assertEqual(saves.sum("springtide_stage_seconds_count", stage="save"), 5)
        self.assertEqual(loads.sum("springtide_lookups_total", outcome="hit", reason="store"), 5)
        self.assertEqual(loads.sum("springtide_lookups_total", outcome="hit", reason="resident"), 1)
        self.assertEqual(loads.sum("springtide_lookups_total", outcome="miss", reason="absent"), 2)
        decided = loads.sum("springtide_lookups_total") + loads.sum("springtide_lookups_waiting")
        self.assertEqual(loads.sum("springtide_lookups_started_total"), decided)
        self.assertEqual(loads.sum("springtide_loaded_total"), 5)
        self.assertEqual(loads.sum("springtide_stage_seconds_count", stage="load"), 5)
        # What one put the other got, and each rank copied it.
        self.assertEqual(saves.sum("springtide_put_bytes_total"), loads.sum("springtide_get_bytes_total"))
        for rank, copy in enumerate(copies):
            self.assertEqual(copy.sum("springtide_deliveries_total", outcome="delivered", rank=str(rank)), 6)
            self.assertEqual(copy.sum("springtide_stage_seconds_count", stage="copy_in"), 6)
            self.assertEqual(copy.sum("springtide_delivery_bytes_total"), 6 * 3 * 16)
        for page in (saves, loads):
            self.check_pool(page)
            self.assertEqual(page.sum("springtide_store_up"), 1)
            self.assertEqual(page.sum("springtide_store_state"), 1)
        fingerprint = producer.scheduler._side.fingerprint
        self.assertEqual(loads.sum("springtide_info", role="consumer", namespace=fingerprint), 1)

    def test_health_and_the_end_of_an_endpoint(self) -> None:
        consumer = self.listening("ec_consumer")
        address = consumer.scheduler._side.metrics_address
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=engine.LIMIT_S) as response:
            self.assertEqual(response.read(), b"ok\nstore up\n")
        consumer.close()
        self.assertIsNone(consumer.scheduler._side.metrics_address)

        def gone() -> bool:
            try:
                Page(address)
            except (urllib.error.URLError, ConnectionError):
                return True
            return False

        wait_until("nothing listens any more", gone)

    def test_no_endpoint_unless_it_is_asked_for(self) -> None:
        consumer = self.engine("ec_consumer")
        self.assertIsNone(consumer.scheduler._side.metrics_address)
        self.assertIsNone(consumer.workers[0]._side.metrics_address)

    def test_each_process_takes_a_port_and_one_in_use_stops_nothing(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with self.assertLogs("vllm.springtide", "WARNING") as logs:
                consumer = self.listening("ec_consumer", f"127.0.0.1:{port}", ranks=2)
                wait_until("the warning is told", lambda: any("no metrics endpoint" in line for line in logs.output))
            self.assertIn(f"127.0.0.1:{port}", str(logs.output))
            self.assertIsNone(consumer.scheduler._side.metrics_address)
            for rank, worker in enumerate(consumer.workers):
                # Somebody else may hold the port by chance.
                self.assertIn(worker._side.metrics_address, (f"127.0.0.1:{port + 1 + rank}", None))
            consumer.run(Request("r", ("a", 3)), output)

    def test_a_hook_that_failed_is_counted(self) -> None:
        consumer = self.listening("ec_consumer")
        with self.assertLogs("vllm.springtide", "ERROR"):
            for _ in range(3):
                self.assertFalse(consumer.scheduler.has_cache_item(None))
        page = self.page(consumer.scheduler)
        self.assertEqual(page.sum("springtide_hook_errors_total", hook="has_cache_item"), 3)

    def test_vllms_metrics_have_what_the_scheduler_counts(self) -> None:
        consumer = self.engine("ec_consumer")
        consumer.scheduler.get_ec_connector_stats()
        consumer.run(Request("r", ("a", 3)), output)
        stats = consumer.scheduler.get_ec_connector_stats()
        self.assertEqual(stats.data["springtide_lookups{miss,absent}"], 1)
        self.assertEqual(stats.data["springtide_lookups_started"], 1)
        self.assertEqual(stats.data["springtide_lookups_waiting"], 0)
        self.assertIsNone(consumer.scheduler.get_ec_connector_stats(), "nothing since")
        self.assertIsNone(consumer.workers[0].get_ec_connector_stats())

        more = {"springtide_lookups_started": 2, "springtide_pool_bytes{free}": 7}
        again = CONNECTOR.build_ec_connector_stats(more)
        reduced = again.aggregate(CONNECTOR.build_ec_connector_stats(more)).reduce()
        self.assertEqual(reduced, {"springtide_lookups_started": 4, "springtide_pool_bytes{free}": 7})

        metrics = CONNECTOR.build_prom_metrics(None, {}, ["model_name", "engine"], {0: ["m", "0"]})
        made = len(stand_ins.Series.made)
        for _ in range(2):
            metrics.observe(stats.data)
        series = {one.name: one for one in stand_ins.Series.made[made:]}
        lookups = series["vllm:springtide_lookups"]
        self.assertEqual(lookups.labelnames, ["model_name", "engine", "outcome", "reason"])
        self.assertEqual(lookups.numbers[("m", "0", "miss", "absent")], 2)
        self.assertIn("Lookups that were decided", lookups.documentation)
        pool = series["vllm:springtide_pool_bytes"].numbers
        self.assertEqual(sum(pool.values()), series["vllm:springtide_pool_size_bytes"].numbers[("m", "0")])


if __name__ == "__main__":
    unittest.main()
