"""End to end: encoder and prefill/decode instances of real vLLM with springtide between them.

    python checks.py [mooncake] [disk] [tensor-parallel] [encode-once] [prefill-decode]

`mooncake` runs one encoder and one prefill/decode instance over the real Mooncake Store (tcp), behind the
proxy: first what must work, then everything that kills an engine without springtide's promises. `disk` runs
two instances over a directory on a file system that is too small; `tensor-parallel` a consumer with two
ranks; `encode-once` two encoders and a consumer, where the second encoder loads what the first has encoded;
`prefill-decode` an encoder, a prefill and a decode instance, the last two with vLLM's KV connector over
files. Each check says what it found; logs are in target/e2e. Exit codes: 0 all passed, 1 not.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tiny_model
from clients import LARGE, Answer, ask, ask_and_leave, chat, image, stream
from processes import HERE, LOGS, Master, Server, Vllm, free_port, wait_until

MODEL = LOGS / "model"
# A consumer's request waits this long for its items: long, so that a busy machine is no miss.
PATIENCE_MS = 20_000
# Of the consumer: two large images do not fit at once.
POOL_BYTES = 10 << 20
# Images whose answers a single instance gives first, by the name of a check.
SINGLE = {
    "one": [image(1)],
    "two": [image(2), image(3)],
    "text": [],
    "large": [image(4, LARGE), image(5, LARGE)],
    **{f"many-{number}": [image(10 + number)] for number in range(8)},
    **{f"spare-{number}": [image(30 + number)] for number in range(18)},
}


class Run:
    """The checks of one section, in order; a check that fails does not keep the others from running."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, []
        self.spare = iter(range(18))

    def check(self, title: str, body: Callable[[], Any]) -> None:
        started = time.monotonic()
        try:
            said = body()
            self.passed += 1
            outcome = "ok"
        except Exception as trouble:
            self.failed.append(title)
            said = "".join(traceback.format_exception_only(trouble)).strip()
            outcome = "FAILED"
        print(f"    {outcome:6} {title} ({time.monotonic() - started:.1f} s)" + (f": {said}" if said else ""), flush=True)


def expect(found: Any, wanted: Any, what: str) -> None:
    assert found == wanted, f"{what}: expected {wanted}, found {found}"


def transfer(role: str, store: dict, **settings: Any) -> dict:
    extra = {"store": store, "loads": {"deadline_ms": PATIENCE_MS}, "wait_for_save_ms": PATIENCE_MS, **settings}
    return {"ec_connector": "SpringtideConnector", "ec_role": role, "ec_connector_extra_config": extra}


def single() -> dict[str, list[float]]:
    """The answers of one instance without a connector."""
    print("==> What a single instance answers", flush=True)
    instance = Vllm("single", MODEL, "0")
    try:
        instance.wait_ready()
        answers = {}
        for name, parts in SINGLE.items():
            answer = ask(instance.url, chat(*parts))
            expect(answer.status, 200, name)
            answers[name] = answer.logprobs()
        return answers
    finally:
        instance.stop()


class Mooncake:
    """One encoder, one prefill/decode instance, a proxy, and a master that comes later."""

    def __init__(self, reference: dict[str, list[float]]) -> None:
        self.reference, self.run = reference, Run()
        self.master = Master(free_port())
        self.faults = {side: LOGS / f"faults-{side}.json" for side in ("encoder", "decoder")}
        self.number = 0

    def store(self, segment: int) -> dict:
        client = {"master": self.master.address, "segment_bytes": segment, "local_buffer_bytes": 16 << 20}
        return {"mooncake": client}

    def start_encoder(self) -> Vllm:
        self.number += 1
        return self.instance(f"encoder-{self.number}", "0", "encoder", transfer("ec_producer", self.store(256 << 20), pool_bytes=128 << 20))

    def instance(self, name: str, cpu: str, side: str, config: dict) -> Vllm:
        self.faults[side].unlink(missing_ok=True)
        environment = {"PYTHONPATH": str(HERE / "faults"), "SPRINGTIDE_FAULTS": str(self.faults[side])}
        return Vllm(name, MODEL, cpu, config, environment=environment)

    def main(self) -> Run:
        print("==> One encoder, one prefill/decode instance, Mooncake over tcp", flush=True)
        consumer = transfer("ec_consumer", self.store(0), pool_bytes=POOL_BYTES)
        self.encoder, self.decoder = self.start_encoder(), self.instance("decoder", "1", "decoder", consumer)
        self.proxy: Server | None = None
        try:
            self.encoder.wait_ready()
            self.decoder.wait_ready()
            self.start_proxy()
            for title, body in self.checks():
                self.run.check(title, body)
        finally:
            for process in filter(None, (self.proxy, self.decoder, self.encoder)):
                process.stop()
            self.master.stop()
        self.run.check("nothing is left in shared memory", self.nothing_left)
        return self.run

    def start_proxy(self) -> None:
        port = free_port()
        command = [sys.executable, "-m", "springtide.proxy", "--port", str(port), "--encode-timeout", "600"]
        command += ["--encoder", self.encoder.url, "--decoder", self.decoder.url]
        if self.proxy is not None:
            self.proxy.stop()
        self.proxy = Server("proxy", port, command).wait_ready()

    def checks(self) -> list[tuple[str, Callable[[], Any]]]:
        return [
            ("the store is down at the start", self.down_at_the_start),
            ("the store comes up", self.comes_up),
            ("the consumer loads, and answers as a single instance", lambda: self.same("one")),
            ("two images in a request", lambda: self.same("two")),
            ("a repeated image is not encoded again", self.repeated),
            ("requests without images", lambda: self.same("text", hits=0)),
            ("a streamed response", self.streamed),
            ("eight requests at once", self.many),
            ("clients that hang up", self.aborted),
            ("an encoder of another namespace is reported once", self.mismatched),
            ("an item that the store has lost is published again", self.republished),
            ("an item is removed between lookup and load", self.removed),
            ("an object is truncated", lambda: self.damaged("truncate")),
            ("an object is overwritten with another item's bytes", lambda: self.damaged("overwrite")),
            ("saving fails", lambda: self.save_fails({"return": -800})),
            ("saving raises", lambda: self.save_fails({"raise": "on purpose"})),
            ("the store is full", lambda: self.save_fails({"return": -200})),
            ("the pool is full", self.pool_full),
            ("the master is killed under load", self.master_killed),
            ("the master is restarted", self.master_restarted),
            ("the owner of the segment is killed", self.owner_killed),
            ("the owner comes back", self.owner_back),
        ]

    # -- helpers -------------------------------------------------------------------------------------

    def alive(self) -> None:
        for instance in (self.encoder, self.decoder):
            assert instance.is_alive() and instance.is_healthy(), f"{instance.name} is dead:\n{instance.tail()}"

    def spare(self) -> tuple[str, dict]:
        """An image that no check has used, and its name."""
        name = f"spare-{next(self.run.spare)}"
        return name, chat(*SINGLE[name])

    def right(self, name: str, answer: Answer) -> None:
        expect(answer.status, 200, f"the answer {answer.body}" if answer.status != 200 else "the answer")
        expect(answer.logprobs(), self.reference[name], "log-probabilities")

    def delta(self, body: Callable[[], Any]) -> tuple[int, dict[str, int]]:
        """What the decoder's encoder and connector did meanwhile."""
        encoded, before = self.decoder.encoded(), self.decoder.events()
        body()
        # What an engine has counted is shown with the next answer at the latest.
        expect(ask(self.decoder.url, chat(tokens=1)).status, 200, "a request without images")
        after = self.decoder.events()
        changes = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        return self.decoder.encoded() - encoded, changes

    def fault(self, side: str, method: str, what: dict) -> None:
        written = self.faults[side].with_suffix(".new")
        written.write_text(json.dumps({method: what}))
        written.rename(self.faults[side])

    def local_encode(self, name: str, body: dict) -> str:
        """A request that finds nothing usable: right all the same, encoded by the decoder; why."""
        encoded, changes = self.delta(lambda: self.right(name, ask(self.decoder.url, body)))
        expect(encoded, 1, f"items encoded by the decoder ({changes})")
        self.alive()
        return ", ".join(name for name in changes if name.startswith("misses."))

    # -- what must work ------------------------------------------------------------------------------

    def down_at_the_start(self) -> str:
        name, body = self.spare()
        self.right(name, ask(self.proxy.url, body))
        self.alive()
        assert "no mooncake_master answers" in self.decoder.text()
        return "answered by a local encode"

    def comes_up(self) -> None:
        self.master.start()
        for instance in (self.encoder, self.decoder):
            wait_until(f"{instance.name} sees the store", lambda log=instance: "the store is up" in log.text())

    def same(self, name: str, hits: int | None = None) -> str:
        parts = SINGLE[name]
        answer = chat(*parts)
        encoded, changes = self.delta(lambda: self.right(name, ask(self.proxy.url, answer)))
        expect(encoded, 0, f"items encoded by the decoder ({changes})")
        expect(changes.get("hits", 0), len(parts) if hits is None else hits, f"hits ({changes})")
        return f"{changes.get('get_bytes', 0)} bytes loaded"

    def repeated(self) -> str:
        encoders = self.encoder.encoded()
        encoded, changes = self.delta(lambda: self.right("one", ask(self.proxy.url, chat(*SINGLE["one"]))))
        expect((encoded, self.encoder.encoded() - encoders), (0, 0), f"items encoded ({changes})")
        return f"{changes.get('gets', 0)} gets"

    def streamed(self) -> str:
        events = stream(self.proxy.url, chat(*SINGLE["one"]))
        chosen = [event["choices"][0] for event in events if event["choices"]]
        tokens = [token for choice in chosen if choice.get("logprobs") for token in choice["logprobs"]["content"]]
        expect([round(token["logprob"], 3) for token in tokens], self.reference["one"], "log-probabilities")
        return f"{len(events)} events"

    def many(self) -> str:
        names = [f"many-{number}" for number in range(8)]

        def all_at_once() -> None:
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda name: ask(self.proxy.url, chat(*SINGLE[name])), names))
            for name, answer in zip(names, answers, strict=True):
                expect(answer.status, 200, name)
                # Sums over a batch of another size round differently.
                furthest = max(abs(a - b) for a, b in zip(answer.logprobs(), self.reference[name], strict=True))
                assert furthest < 0.1, f"{name}: {answer.logprobs()}, alone {self.reference[name]}"

        encoded, changes = self.delta(all_at_once)
        # A busy machine may miss a deadline, and the pool holds no more than five at a time.
        assert encoded <= 2, f"{encoded} of 8 encoded by the decoder ({changes})"
        return f"{encoded} of 8 encoded by the decoder"

    def aborted(self) -> str:
        """While their request waits for the store, and at any other moment."""
        name, body = self.spare()
        self.encode(body)
        called = Path(f"{self.faults['decoder']}.called")
        called.unlink(missing_ok=True)
        withdrawn = self.decoder.events().get("withdrawn", 0)
        self.fault("decoder", "batch_get_into_multi_buffers", {"sleep_s": 5})
        try:
            ask_and_leave(self.decoder.url, body, lambda: wait_until("the get runs", called.exists))
            for _ in range(3):
                ask_and_leave(self.decoder.url, body)
        finally:
            self.faults["decoder"].unlink()

        def settled() -> bool:
            expect(ask(self.decoder.url, chat(tokens=1)).status, 200, "a request without images")
            events = self.decoder.events()
            orders = events.get("orders", 0) - events.get("orders_acknowledged", 0)
            return orders == 0 and events.get("withdrawn", 0) > withdrawn

        wait_until("lookups are withdrawn and every order is acknowledged", settled)
        encoded, _ = self.delta(lambda: self.right(name, ask(self.decoder.url, body)))
        expect(encoded, 0, "items encoded by the decoder, when it is asked for again")
        self.alive()
        return f"{self.decoder.events()['withdrawn'] - withdrawn} lookups withdrawn"

    def mismatched(self) -> None:
        """As the proxy passes it on, from an encoder that is configured otherwise."""
        told = {"ec_transfer_params": {"0" * 64: {"item_indices": [0], "springtide": "st1/another"}}}
        for _ in range(3):
            name, body = "one", chat(*SINGLE["one"])
            self.right(name, ask(self.decoder.url, body | told))
        expect(self.decoder.text().count("the encoder saves under st1/another"), 1, "lines about it")

    # -- what kills an engine ------------------------------------------------------------------------

    def encode(self, body: dict) -> str:
        """Has an item encoded and saved; its key."""
        answer = ask(self.encoder.url, body)
        expect(answer.status, 200, "the encoder's answer")
        (key,) = answer.keys()
        return key

    def tool(self, *arguments: str) -> str:
        command = [sys.executable, str(HERE / "store_tool.py"), self.master.address, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else ""

    def republished(self) -> None:
        """The encoder's engine holds the item, so it is not encoded again."""
        name, body = self.spare()
        key, encoders = self.encode(body), self.encoder.encoded()
        self.tool("remove", key)
        expect(self.encode(body), key, "its key")
        expect(self.encoder.encoded() - encoders, 0, "items encoded by the encoder")
        encoded, _ = self.delta(lambda: self.right(name, ask(self.decoder.url, body)))
        expect(encoded, 0, "items encoded by the decoder")

    def removed(self) -> str:
        name, body = self.spare()
        self.encode(body)
        self.fault("decoder", "batch_get_into_multi_buffers", {"remove_first": True})
        try:
            return self.local_encode(name, body)
        finally:
            self.faults["decoder"].unlink()

    def damaged(self, how: str) -> str:
        name, body = self.spare()
        key = self.encode(body)
        self.tool(how, key, *([self.encode(self.spare()[1])] if how == "overwrite" else []))
        why = self.local_encode(name, body)
        assert "rejected" in why, why
        wait_until("the bad object is removed", lambda: self.tool("size", key) == "-704")
        return why

    def save_fails(self, how: dict) -> str:
        name, body = self.spare()
        self.fault("encoder", "batch_put_from_multi_buffers", how)
        try:
            self.encode(body)
            return self.local_encode(name, body)
        finally:
            self.faults["encoder"].unlink()

    def pool_full(self) -> str:
        """Two items that fit only one at a time, in one request."""
        encoded, changes = self.delta(lambda: self.right("large", ask(self.proxy.url, chat(*SINGLE["large"]))))
        expect((encoded, changes.get("hits", 0)), (1, 1), f"encoded by the decoder, hits ({changes})")
        self.alive()
        return ", ".join(name for name in changes if name.startswith("misses."))

    def master_killed(self) -> str:
        spares = [self.spare() for _ in range(2)]
        bodies = [body for _, body in spares] + [chat(*SINGLE["one"]), chat(*SINGLE["two"])]
        killer = threading.Timer(0.5, self.master.kill)
        with ThreadPoolExecutor(4) as pool:
            killer.start()
            answers = list(pool.map(lambda body: ask(self.proxy.url, body), bodies))
        killer.join()
        expect([answer.status for answer in answers], [200] * 4, "answers under load")
        name, body = self.spare()
        self.right(name, ask(self.proxy.url, body))
        self.alive()
        return "five requests answered"

    def master_restarted(self) -> str:
        self.master.start()
        seeds = iter(range(1000, 2000))

        def hit() -> bool:
            encoded, changes = self.delta(lambda: expect(ask(self.proxy.url, chat(image(next(seeds)))).status, 200, "answer"))
            return encoded == 0 and changes.get("hits", 0) == 1

        started = time.monotonic()
        wait_until("an item goes through the store again", hit)
        self.alive()
        return f"the first hit after {time.monotonic() - started:.1f} s"

    def owner_killed(self) -> str:
        name, body = self.spare()
        self.encode(body)
        self.encoder.kill()
        encoded, changes = self.delta(lambda: self.right(name, ask(self.decoder.url, body)))
        expect(encoded, 1, f"items encoded by the decoder ({changes})")
        assert self.decoder.is_alive() and self.decoder.is_healthy()
        return ", ".join(name for name in changes if name.startswith("misses."))

    def owner_back(self) -> str:
        self.encoder = self.start_encoder()
        self.encoder.wait_ready()
        self.start_proxy()
        return self.master_hit()

    def master_hit(self) -> str:
        seeds = iter(range(2000, 3000))

        def hit() -> bool:
            encoded, changes = self.delta(lambda: expect(ask(self.proxy.url, chat(image(next(seeds)))).status, 200, "answer"))
            return encoded == 0 and changes.get("hits", 0) == 1

        wait_until("an item goes through the store again", hit)
        self.alive()
        return ""

    def nothing_left(self) -> None:
        left = [path.name for path in Path("/dev/shm").glob("springtide-region-*")]
        expect(left, [], "regions")


class Disk:
    """Two instances over a directory on a file system of a few megabytes."""

    BYTES = 4 << 20

    def __init__(self, reference: dict[str, list[float]], ranks: int) -> None:
        self.reference, self.ranks, self.run = reference, ranks, Run()

    def main(self) -> Run:
        print(f"==> A directory as the store, {self.ranks} rank(s), the disk runs full", flush=True)
        directory = Path(tempfile.mkdtemp(prefix="springtide-e2e-"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.BYTES}", "tmpfs", str(directory)], check=True)
        try:
            self.with_directory(directory)
        finally:
            subprocess.run(["umount", str(directory)], check=True)
            shutil.rmtree(directory)
        return self.run

    def with_directory(self, directory: Path) -> None:
        store = {"disk": {"directory": str(directory), "capacity_bytes": 1 << 30}}
        flags = ("--tensor-parallel-size", str(self.ranks)) if self.ranks > 1 else ()
        cpus = "|".join("1" for _ in range(self.ranks))
        name = f"disk-{self.ranks}"
        encoder = Vllm(f"{name}-encoder", MODEL, "0", transfer("ec_producer", store, pool_bytes=64 << 20))
        decoder = Vllm(f"{name}-decoder", MODEL, cpus, transfer("ec_consumer", store, pool_bytes=64 << 20), flags=flags)
        try:
            encoder.wait_ready()
            decoder.wait_ready()
            self.run.check("the consumer loads from the directory", lambda: self.loads(encoder, decoder))
            self.run.check("the disk is full", lambda: self.full(encoder, decoder))
        finally:
            encoder.stop()
            decoder.stop()

    def loads(self, encoder: Vllm, decoder: Vllm) -> str:
        body = chat(*SINGLE["one"])
        expect(ask(encoder.url, body).status, 200, "the encoder's answer")
        answer = ask(decoder.url, body)
        expect(answer.status, 200, "the answer")
        # Ranks add up their parts in another order.
        furthest = max(abs(a - b) for a, b in zip(answer.logprobs(), self.reference["one"], strict=True))
        assert furthest < (0.1 if self.ranks > 1 else 0.002), f"{answer.logprobs()}, alone {self.reference['one']}"
        expect(decoder.encoded(), 0, "items encoded by the decoder")
        events = wait_until("it is counted", lambda: decoder.events().get("orders_acknowledged") and decoder.events())
        expect((events["hits"], events["orders"]), (1, 1), f"hits and orders ({events})")
        return f"furthest log-probability {furthest:.4f}"

    def full(self, encoder: Vllm, decoder: Vllm) -> str:
        parts = [image(seed) for seed in range(100, 104)]
        for part in parts:
            expect(ask(encoder.url, chat(part)).status, 200, "the encoder's answer")
            expect(ask(decoder.url, chat(part)).status, 200, "the answer")
        assert encoder.is_alive() and decoder.is_alive() and encoder.is_healthy() and decoder.is_healthy()
        # Every rank encodes. 4 MB hold two items of 1.6 MB, one of which is there.
        encoded = decoder.encoded() // self.ranks
        assert encoded >= 3, f"{encoded} items encoded by the decoder"
        assert "not every item was saved" in encoder.text()
        return f"{encoded} of 4 encoded by the decoder"


class EncodeOnce:
    """Two encoders, of which the second has `encode_once`, and a consumer, over a directory."""

    def __init__(self, reference: dict[str, list[float]]) -> None:
        self.reference, self.run = reference, Run()

    def main(self) -> Run:
        print("==> Two encoders that encode each item once", flush=True)
        with tempfile.TemporaryDirectory(prefix="springtide-e2e-") as directory:
            self.directory = Path(directory)
            store = {"disk": {"directory": directory, "capacity_bytes": 1 << 30}}
            producer = transfer("ec_producer", store, pool_bytes=64 << 20)
            once = transfer("ec_producer", store, pool_bytes=64 << 20, encode_once=True)
            self.first = Vllm("once-first", MODEL, "0", producer)
            self.second = Vllm("once-second", MODEL, "1", once)
            self.decoder = Vllm("once-decoder", MODEL, "1", transfer("ec_consumer", store, pool_bytes=64 << 20))
            instances = (self.first, self.second, self.decoder)
            try:
                for instance in instances:
                    instance.wait_ready()
                self.run.check("an encoder loads what another has encoded", self.loads)
                self.run.check("it gives the memory back", self.given_back)
                self.run.check("it publishes again what the store has lost", self.republished)
                self.run.check("it encodes what nobody has encoded", self.encodes)
            finally:
                for instance in instances:
                    instance.stop()
        return self.run

    def objects(self) -> list[Path]:
        return [path for path in self.directory.rglob("*") if path.is_file() and path.stat().st_size > 1 << 20]

    def loads(self) -> str:
        body = chat(*SINGLE["one"])
        expect(ask(self.first.url, body).status, 200, "the first encoder's answer")
        expect(len(self.objects()), 1, "objects")
        expect(ask(self.second.url, body).status, 200, "the second encoder's answer")
        expect(self.second.encoded(), 0, "items encoded by the second encoder")
        return f"{self.second.events().get('hits', 0)} hits"

    def given_back(self) -> str:
        def settled() -> bool:
            events = self.second.events()
            return events.get("orders", 0) == events.get("orders_acknowledged", -1)

        # What an engine has counted is shown with the next step at the latest.
        expect(ask(self.second.url, chat(*SINGLE["one"])).status, 200, "the second encoder's answer")
        wait_until("its order ends with the step", settled)
        return f"{self.second.events()['orders']} orders"

    def republished(self) -> None:
        for path in self.objects():
            path.unlink()
        body = chat(*SINGLE["one"])
        expect(ask(self.second.url, body).status, 200, "the second encoder's answer")
        expect((self.second.encoded(), len(self.objects())), (0, 1), "items encoded by the second encoder, objects")
        answer = ask(self.decoder.url, body)
        expect(answer.status, 200, "the answer")
        expect(answer.logprobs(), self.reference["one"], "log-probabilities")
        expect(self.decoder.encoded(), 0, "items encoded by the decoder")

    def encodes(self) -> None:
        body = chat(*SINGLE["two"])
        expect(ask(self.second.url, body).status, 200, "the second encoder's answer")
        expect((self.second.encoded(), len(self.objects())), (2, 3), "items encoded by the second encoder, objects")
        answer = ask(self.decoder.url, body)
        expect(answer.status, 200, "the answer")
        expect(answer.logprobs(), self.reference["two"], "log-probabilities")
        expect(self.decoder.encoded(), 0, "items encoded by the decoder")


class PrefillDecode:
    """An encoder, a prefill and a decode instance, all over directories."""

    def __init__(self, reference: dict[str, list[float]]) -> None:
        self.reference, self.run = reference, Run()

    def main(self) -> Run:
        print("==> An encoder, a prefill and a decode instance", flush=True)
        with tempfile.TemporaryDirectory(prefix="springtide-e2e-") as directory:
            store = {"disk": {"directory": f"{directory}/items", "capacity_bytes": 1 << 30}}
            Path(directory, "kv").mkdir()
            self.instances = [Vllm("three-encoder", MODEL, "0", transfer("ec_producer", store, pool_bytes=64 << 20))]
            for name, role, cpu in (("prefill", "kv_producer", "1"), ("decode", "kv_consumer", "0")):
                kv = {"kv_connector": "ExampleConnector", "kv_role": role}
                kv["kv_connector_extra_config"] = {"shared_storage_path": f"{directory}/kv"}
                flags = ("--kv-transfer-config", json.dumps(kv))
                config = transfer("ec_consumer", store, pool_bytes=64 << 20)
                self.instances.append(Vllm(f"three-{name}", MODEL, cpu, config, flags=flags))
            self.proxy: Server | None = None
            try:
                for instance in self.instances:
                    instance.wait_ready()
                self.start_proxy()
                self.run.check("a request through all three", lambda: self.through("one"))
                self.run.check("two images through all three", lambda: self.through("two"))
            finally:
                for process in filter(None, (self.proxy, *self.instances)):
                    process.stop()
        return self.run

    def start_proxy(self) -> None:
        encoder, prefill, decode = (instance.url for instance in self.instances)
        port = free_port()
        command = [sys.executable, "-m", "springtide.proxy", "--port", str(port), "--encode-timeout", "600"]
        command += ["--encoder", encoder, "--prefill", prefill, "--decoder", decode]
        self.proxy = Server("three-proxy", port, command).wait_ready()

    def through(self, name: str) -> str:
        encoder, prefill, decode = self.instances
        before = [instance.encoded() for instance in self.instances]
        answer = ask(self.proxy.url, chat(*SINGLE[name]))
        expect(answer.status, 200, f"the answer {answer.body}" if answer.status != 200 else "the answer")
        after = [instance.encoded() for instance in self.instances]
        encoded = [now - then for now, then in zip(after, before, strict=True)]
        expect(encoded[1:], [0, 0], "items encoded by prefill and decode")
        furthest = max(abs(a - b) for a, b in zip(answer.logprobs(), self.reference[name], strict=True))
        assert furthest < 0.1, f"{answer.logprobs()}, alone {self.reference[name]}"
        expect(encoded[0], len(SINGLE[name]), "items encoded by the encoder")
        return f"furthest log-probability {furthest:.4f}"


def main(sections: list[str]) -> int:
    known = ("mooncake", "disk", "tensor-parallel", "encode-once", "prefill-decode")
    if not set(sections) <= set(known):
        print(__doc__, file=sys.stderr)
        return 2
    for old in LOGS.glob("*.log"):
        old.unlink()
    tiny_model.write(MODEL)
    reference = single()
    runs = []
    for section in sections or known:
        if section == "mooncake":
            runs.append(Mooncake(reference).main())
        elif section == "encode-once":
            runs.append(EncodeOnce(reference).main())
        elif section == "prefill-decode":
            runs.append(PrefillDecode(reference).main())
        else:
            runs.append(Disk(reference, 2 if section == "tensor-parallel" else 1).main())
    failed = [title for run in runs for title in run.failed]
    print(f"{sum(run.passed for run in runs)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
