"""The encoder-cache connector that vLLM loads.

One class with two sides: in the scheduler's process it asks `SchedulerSide`, in a worker's `WorkerSide`, both
of the extension module. Here objects are translated and nothing is decided. Three promises hold for every
hook, whatever happens below: it does not raise, it does not talk to the store on the engine's thread, and it
returns what its type says.
"""

import functools
import hashlib
import json
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorBase,
    ECConnectorMetadata,
    ECConnectorRole,
    ECConnectorWorkerMetadata,
)
from vllm.distributed.ec_transfer.ec_connector.metrics import ECConnectorPromMetrics, ECConnectorStats
from vllm.distributed.ec_transfer.ec_connector.utils import (
    PlaceholderMetadataResolver,
    collect_ec_item_metadata,
)
from vllm.logger import init_logger

from springtide import __version__
from springtide._native import SchedulerSide, WorkerSide, metrics
from springtide.model import describe
from springtide.quiet import Quiet, name

# Loggers outside of `vllm` are not shown.
logger = init_logger("vllm.springtide")
logger.addFilter(Quiet())

# Hooks of the base class that do what is right for this connector as they are, and why.
INHERITED = {
    "clear_connector_metadata": "forgets the step's metadata",
    "has_pending_push_work": "nothing is pushed: the engine need not turn for us",
    "is_consumer": "what the role says",
    "is_producer": "what the role says",
    "register_caches": "nothing is sent from the engine's own memory; vLLM does not call it",
    "role": "which side this is",
    "start_worker_services": "the threads run since the constructor",
    "update_state_after_free": "build_connector_meta names what has left the engine's cache",
}
# Seconds that a shutdown may take, and between two lines that say what has been saved.
SHUTDOWN_S = 5.0
COUNTERS_S = 10.0


def hook(default: Callable[[], Any]) -> Callable[..., Any]:
    """Keeps a hook from raising: the engine would end. The trouble is counted, and told from time to time."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def guarded(self: "SpringtideConnector", *arguments: Any, **named: Any) -> Any:
            try:
                return method(self, *arguments, **named)
            except (KeyboardInterrupt, SystemExit):
                raise
            # A panic of the extension module is no `Exception`.
            except BaseException as trouble:
                self._trouble(method.__name__, trouble)
                return default()

        return guarded

    return wrap


class Metric(NamedTuple):
    """A metric of the catalogue."""

    kind: str
    labels: list[str]
    text: str


METRICS = {name: Metric(*described) for name, *described in metrics()}


def series(name: str) -> tuple[str, list[str]]:
    """The metric and the values of its labels, in a name as `springtide_lookups{miss,absent}`."""
    metric, _, values = name.partition("{")
    return metric, values.removesuffix("}").split(",") if values else []


class SpringtideMetadata(ECConnectorMetadata):
    """What a step asks of the workers; empty if nothing."""

    def __init__(self, plan: str = "") -> None:
        self.plan = plan


class SpringtideAcknowledgement(ECConnectorWorkerMetadata):
    """Which orders each rank has copied."""

    def __init__(self, ranks: list[tuple[int, list[int]]]) -> None:
        self.ranks = ranks

    def aggregate(self, other: ECConnectorWorkerMetadata) -> ECConnectorWorkerMetadata:
        if not isinstance(other, SpringtideAcknowledgement):
            return self
        return SpringtideAcknowledgement(self.ranks + other.ranks)


class SpringtideStats(ECConnectorStats):
    """How much counters grew since the last call, and gauges as they are: by the metric's name with the values
    of its labels, such as `springtide_lookups{miss,absent}`."""

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: ECConnectorStats) -> ECConnectorStats:
        for name, number in other.data.items():
            before = self.data.get(name, 0) if METRICS[series(name)[0]].kind == "counter" else 0
            self.data[name] = before + number
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not self.data


class SpringtideMetrics(ECConnectorPromMetrics):
    """The numbers on vLLM's `/metrics`, under the names of docs/metrics.md behind `vllm:`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._metrics: dict[str, Any] = {}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, number in transfer_stats_data.items():
            metric, values = series(name)
            target = self._metric(metric).labels(*self.per_engine_labelvalues[engine_idx], *values)
            if METRICS[metric].kind == "counter":
                target.inc(max(number, 0))
            else:
                target.set(number)

    def _metric(self, name: str) -> Any:
        if name not in self._metrics:
            described = METRICS[name]
            named = {
                "name": f"vllm:{name}",
                "documentation": described.text,
                "labelnames": [*self._labelnames, *described.labels],
            }
            if described.kind == "counter":
                self._metrics[name] = self._counter_cls(**named)
            else:
                # Where several API servers answer, the last number is the one that is true.
                self._metrics[name] = self._gauge_cls(multiprocess_mode="mostrecent", **named)
        return self._metrics[name]


class SpringtideConnector(ECConnectorBase):
    """Encoder outputs in a store that all instances share."""

    def __init__(self, vllm_config: Any, role: ECConnectorRole) -> None:
        super().__init__(vllm_config, role)
        instance = describe_instance(vllm_config)
        self._rank = instance["rank"]
        self._hook_errors: dict[str, int] = {}
        self._counters_at = -COUNTERS_S
        self._mismatched = False
        text = json.dumps(instance)
        if role == ECConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(text)
            self._resolver = PlaceholderMetadataResolver(vllm_config.model_config)
            self._side = self._scheduler
        else:
            self._worker = WorkerSide(text)
            self._saves = self.is_producer and self._rank == 0
            self._work: tuple[list, list, list] = ([], [], [])
            self._copied: list[int] = []
            self._counted: dict[str, int] = {}
            self._side = self._worker
        where = role.name.lower()
        logger.info("springtide %s: %s, namespace %s", __version__, where, self._side.fingerprint)
        if self._rank == 0:
            logger.info("springtide namespace %s is %s", self._side.fingerprint, self._side.namespace)

    # -- scheduler -----------------------------------------------------------------------------------

    # True: where the connector is in trouble, the engine encodes.
    @hook(lambda: True)
    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        items = []
        for index, feature in enumerate(request.mm_features):
            position = feature.mm_position
            if position.offset + position.length > num_computed_tokens:
                items.append((feature.identifier, request.get_num_encoder_embeds(index)))
        if not items:
            return True
        if not self._mismatched:
            self._compare_namespaces(request)
        return self._scheduler.ensure_available(request.request_id, items)

    @hook(lambda: False)
    def has_cache_item(self, identifier: str) -> bool:
        return self._scheduler.has_item(identifier)

    @hook(lambda: None)
    def update_state_after_alloc(self, request: Any, index: int) -> None:
        self._scheduler.allocated(request.request_id, request.mm_features[index].identifier)

    @hook(SpringtideMetadata)
    def build_connector_meta(self, scheduler_output: Any) -> ECConnectorMetadata:
        # Steps are counted: this one too, whatever it is.
        freed = list(getattr(scheduler_output, "free_encoder_mm_hashes", ()))
        return SpringtideMetadata(self._scheduler.build_step(freed))

    @hook(lambda: None)
    def update_connector_output(self, connector_output: Any) -> None:
        acknowledgement = connector_output.ec_connector_worker_meta
        if isinstance(acknowledgement, SpringtideAcknowledgement):
            for rank, orders in acknowledgement.ranks:
                self._scheduler.acknowledge(rank, orders)

    # Called once for each step that was built, when it has ended on every rank.
    @hook(set)
    def take_unavailable_requests(self) -> set[str]:
        self._scheduler.step_ended()
        # What was promised lies in memory: nothing becomes unavailable.
        return set()

    @hook(lambda: (False, None))
    def request_finished(self, request: Any) -> tuple[bool, dict[str, Any] | None]:
        self._scheduler.request_finished(request.request_id)
        if not self.is_producer or not request.mm_features:
            return False, None
        items = collect_ec_item_metadata(request.mm_features, self._resolver)
        for item in items.values():
            item["springtide"] = self._side.fingerprint
        return False, items or None

    @hook(lambda: None)
    def get_ec_connector_stats(self) -> ECConnectorStats | None:
        if self.role != ECConnectorRole.SCHEDULER:
            # A worker's would be dropped.
            return None
        grown, now = self._scheduler.changes()
        return SpringtideStats(data=grown | now) if grown else None

    @classmethod
    def build_ec_connector_stats(cls, data: dict[str, Any] | None = None) -> ECConnectorStats | None:
        return SpringtideStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: dict[type, type],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> ECConnectorPromMetrics | None:
        return SpringtideMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # -- worker --------------------------------------------------------------------------------------

    @hook(lambda: None)
    def bind_connector_metadata(self, connector_metadata: ECConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._work, self._copied = ([], [], []), []
        self._work = self._worker.due(getattr(connector_metadata, "plan", ""))

    @hook(lambda: None)
    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **kwargs: Any) -> None:
        if self.is_consumer:
            self._load(encoder_cache)

    @hook(lambda: None)
    def start_save_caches(self, **kwargs: Any) -> None:
        encoder_cache = kwargs.get("encoder_cache")
        if not self._saves or encoder_cache is None:
            return
        if not self.is_consumer:
            # With `encode_once`; the hook for loads is a consumer's.
            self._load(encoder_cache)
        for identifier in self._work[2]:
            if identifier in encoder_cache:
                self._save(identifier, encoder_cache[identifier])

    @hook(lambda: None)
    def save_caches(self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **kwargs: Any) -> None:
        if self._saves:
            self._save(mm_hash, encoder_cache[mm_hash])

    # The last hook before the step's output leaves: no response before its items are readable.
    @hook(lambda: (None, None))
    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        self.wait_for_save()
        return None, None

    @hook(lambda: None)
    def wait_for_save(self) -> None:
        """Waits, bounded, until what this step saved is readable. Runners before 0.12 call it by name."""
        if not self._saves:
            return
        report, missing = self._worker.wait_for_save()
        if not report:
            return
        logger.debug("springtide: saved: %s", report)
        if missing:
            key, item, why = missing[0]
            logger.warning("springtide: not every item was saved (%s), such as %s: %s, item: %s", report, key, why, item)
        now = time.monotonic()
        if now - self._counters_at >= COUNTERS_S:
            self._counters_at = now
            counters = self._worker.counters()
            changes = {name: count for name, count in counters.items() if count != self._counted.get(name, 0)}
            self._counted = counters
            logger.info("springtide: saves so far: %s", changes)

    @hook(lambda: None)
    def build_connector_worker_meta(self) -> ECConnectorWorkerMetadata | None:
        copied, self._copied = self._copied, []
        return SpringtideAcknowledgement([(self._rank, copied)]) if copied else None

    # -- both ----------------------------------------------------------------------------------------

    @hook(lambda: None)
    def shutdown(self) -> None:
        logger.info("springtide: closing: %s", self._side.close(SHUTDOWN_S))

    # -- inside --------------------------------------------------------------------------------------

    def _load(self, encoder_cache: dict[str, torch.Tensor]) -> None:
        loads, copied, _ = self._work
        self._copied = list(copied)
        names, targets = {}, []
        for number, identifier, dtype, shape in loads:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            names[number] = (identifier, tensor)
            targets.append((number, tensor))
        for number, error in self._worker.load(targets) if targets else ():
            identifier, tensor = names[number]
            if error is not None:
                item = self._side.item(identifier)
                logger.error("springtide: %s was promised and not delivered: %s, item: %s", name(identifier), error, item)
                continue
            encoder_cache[identifier] = to_device(tensor)
            self._copied.append(number)

    def _save(self, identifier: str, tensor: torch.Tensor) -> None:
        tensor = tensor.detach()
        if tensor.device.type != "cpu":
            tensor = tensor.to("cpu")
        self._worker.save(identifier, tensor.contiguous())

    def _compare_namespaces(self, request: Any) -> None:
        """The proxy passes on what the encoder's response said: whether it saves where we look."""
        items = getattr(request, "ec_transfer_params", None)
        if not isinstance(items, dict):
            return
        ours = self._side.fingerprint
        for item in items.values():
            theirs = item.get("springtide", ours) if isinstance(item, dict) else ours
            if theirs != ours:
                self._mismatched = True
                logger.error(
                    "springtide: the encoder saves under %s, but we look under %s: nothing will be found. The "
                    "configurations differ; both logs have a line `springtide namespace` that says what they "
                    "are. Make them equal, or set `namespace` in ec_connector_extra_config.",
                    theirs,
                    ours,
                )
                return

    def _trouble(self, name: str, trouble: BaseException) -> None:
        self._hook_errors[name] = self._hook_errors.get(name, 0) + 1
        self._side.hook_failed(name)
        # Each hook is a kind of its own, so that none hides another.
        text = f"springtide: hook {name} failed (%d times so far)"
        logger.error(text, self._hook_errors[name], exc_info=trouble)


def to_device(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor where the model runs."""
    from vllm.platforms import current_platform

    kind = current_platform.device_type
    if kind == "cpu":
        return tensor
    return tensor.to(torch.device(kind, torch.accelerator.current_device_index()))


def names_a_store(variable: str) -> bool:
    """Whether an environment variable says where items are kept."""
    return variable == "MOONCAKE_CONFIG_PATH" or variable.startswith("SPRINGTIDE__STORE__")


def step_timeout_s() -> int | None:
    """How long the engine waits for a step of its workers, where vLLM says it."""
    try:
        from vllm.envs import VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS as seconds
    except (ImportError, AttributeError):
        return None
    return int(seconds) if seconds else None


def describe_instance(vllm_config: Any) -> dict[str, Any]:
    """What the extension module is told about this process."""
    transfer, parallel = vllm_config.ec_transfer_config, vllm_config.parallel_config
    role = {"ec_producer": "producer", "ec_consumer": "consumer", "ec_both": "both"}[transfer.ec_role]
    if transfer.is_ec_consumer and getattr(parallel, "nnodes_within_dp", 1) > 1:
        raise ValueError("springtide: the workers of a consumer must run on one node: they share its memory")
    settings = dict(transfer.ec_connector_extra_config)
    if "store" not in settings and not any(map(names_a_store, os.environ)):
        example = '{"store": {"disk": {"directory": "/var/cache/springtide", "capacity_bytes": 10000000000}}}'
        raise ValueError(f"springtide: ec_connector_extra_config must say where items are kept, such as {example}")
    ranks = parallel.tensor_parallel_size
    engine = f"{transfer.engine_id}-{getattr(parallel, 'data_parallel_index', 0)}"
    return {
        "role": role,
        "rank": parallel.rank % ranks,
        "tensor_parallel": ranks,
        # As long as it is, a name of a file is short.
        "region": "/dev/shm/springtide-region-" + hashlib.blake2b(engine.encode(), digest_size=16).hexdigest(),
        "host": transfer.ec_ip,
        # A worker that is not back by then ends the engine, and a producer's waits for its saves.
        "step_timeout_s": step_timeout_s(),
        "model": describe(vllm_config),
        "settings": settings,
    }
