"""An engine as far as the connector sees it: both sides of one instance, called in vLLM's order.

The metadata is pickled on its way, as between vLLM's processes.
"""

import pickle
import time
from types import SimpleNamespace
from typing import Any

import stand_ins
from stand_ins import Request, Role, Tensor

CONNECTOR = stand_ins.install()
TORCH = __import__("torch")
# Waits end by a condition; this only ends a test that has failed.
LIMIT_S = 60.0
# Deadlines that no wait reaches which ends well, however busy the machine is.
PATIENT = {"loads": {"deadline_ms": 60_000}, "saves": {"deadline_ms": 60_000}, "wait_for_save_ms": 60_000}


def wait_until(what: str, condition: Any) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT_S} s: {what}"
        time.sleep(0.002)


class Engine:
    """One instance: its workers are made before its scheduler, as vLLM does."""

    def __init__(self, role: str, settings: dict, ranks: int = 1, **changes: Any) -> None:
        def connector(side: Role, rank: int) -> Any:
            config = stand_ins.vllm_config(role, settings, ranks=ranks, rank=rank, **changes)
            return CONNECTOR.SpringtideConnector(config, side)

        self.role = role
        self.loads = role != "ec_producer" or settings.get("encode_once", False)
        self.workers = [connector(Role.WORKER, rank) for rank in range(ranks)]
        self.scheduler = connector(Role.SCHEDULER, 0)
        self.caches: list[dict[str, Tensor]] = [{} for _ in range(ranks)]
        self.held: set[str] = set()
        self.freed: list[str] = []
        self.encoded: list[str] = []

    def store_is_up(self) -> "Engine":
        saving = [self.workers[0]] if self.role != "ec_consumer" else []
        loading = [self.scheduler] if self.loads else []
        for side in saving + loading:
            assert side._side.wait_for_store(LIMIT_S), "the store did not come up"
        return self

    def schedule(self, request: Request, computed: int = 0) -> bool:
        """One scheduling pass for a request; whether it can run, its media then being loaded or encoded."""
        if not self.scheduler.ensure_cache_available(request, computed):
            return False
        for index, feature in enumerate(request.mm_features):
            name = feature.identifier
            if name in self.held or feature.mm_position.offset + feature.mm_position.length <= computed:
                continue
            if not self.scheduler.has_cache_item(name):
                self.encoded.append(name)
            self.scheduler.update_state_after_alloc(request, index)
            self.held.add(name)
        return True

    def step(self, encoder: Any = None, ranks: list[int] | None = None) -> None:
        """Builds a step, runs it on the workers (or those of `ranks`), and tells the scheduler.
        `encoder(name)` makes what was not loaded."""
        output = SimpleNamespace(free_encoder_mm_hashes=self.freed)
        metadata = pickle.dumps(self.scheduler.build_connector_meta(output))
        for name in self.freed:
            for cache in self.caches:
                cache.pop(name, None)
        self.freed = []
        encoded, self.encoded = self.encoded, []
        answer = None
        for rank, (worker, cache) in enumerate(zip(self.workers, self.caches, strict=True)):
            if ranks is not None and rank not in ranks:
                continue
            worker.bind_connector_metadata(pickle.loads(metadata))
            if worker.is_producer:
                worker.start_save_caches(encoder_cache=cache)
            if worker.is_consumer:
                worker.start_load_caches(cache)
            for name in encoded:
                cache[name] = encoder(name)
                worker.save_caches(encoder_cache=cache, mm_hash=name)
            assert worker.get_finished(set()) == (None, None)
            said = worker.build_connector_worker_meta()
            worker.clear_connector_metadata()
            if said is not None:
                said = pickle.loads(pickle.dumps(said))
                answer = said if answer is None else answer.aggregate(said)
        assert self.scheduler.take_unavailable_requests() == set()
        if answer is not None:
            self.scheduler.update_connector_output(SimpleNamespace(ec_connector_worker_meta=answer))

    def run(self, request: Request, encoder: Any = None) -> dict[str, Tensor]:
        """A request from its arrival to its end; the media that its step had."""
        wait_until(f"{request.request_id} can be scheduled", lambda: self.schedule(request))
        self.step(encoder)
        self.scheduler.request_finished(request)
        return {feature.identifier: self.caches[0].get(feature.identifier) for feature in request.mm_features}

    def drop(self, *names: str) -> None:
        """These leave the engine's own cache with the next step."""
        self.held -= set(names)
        self.freed += names

    def gauges(self) -> dict[str, int]:
        names = ("requests", "orders", "keys", "residents", "in_flight_bytes")
        return dict(zip(names, self.scheduler._side.gauges(), strict=True))

    def counters(self) -> dict[str, int]:
        side = self.scheduler if self.role == "ec_consumer" else self.workers[0]
        return side._side.counters()

    def close(self) -> None:
        for side in [*self.workers, self.scheduler]:
            side.shutdown()


def output(name: str, rows: int = 3) -> Tensor:
    """What the encoder makes of an item: other bytes for other names."""
    content = (name.encode("utf-8", "surrogatepass") * 16)[: rows * 16].ljust(rows * 16, b".")
    return Tensor((rows, 8), TORCH.bfloat16, content)
