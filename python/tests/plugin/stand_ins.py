"""Stand-ins for vLLM and PyTorch, so that the connector runs where neither is installed.

The base class is made of the recorded list of hooks; tensors are buffers with the few methods that the
connector and the extension module use. What they cannot stand in for runs in `just e2e`, on real vLLM.
"""

import ctypes
import enum
import logging
import sys
import types
from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any

import hooks


class Role(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


def base_class() -> type:
    """`ECConnectorBase` as recorded: abstract methods are abstract, others return nothing."""

    def init(self: Any, vllm_config: Any, role: Role) -> None:
        self._connector_metadata = None
        self._role = role
        transfer = vllm_config.ec_transfer_config
        self._is_producer, self._is_consumer = transfer.is_ec_producer, transfer.is_ec_consumer

    def bind(self: Any, connector_metadata: Any) -> None:
        self._connector_metadata = connector_metadata

    def clear(self: Any) -> None:
        self._connector_metadata = None

    members: dict[str, Any] = {"__init__": init}
    for name, recorded in hooks.recorded()["hooks"].items():
        if recorded["kind"] == "property":
            members[name] = property(lambda self, name=f"_{name}": getattr(self, name))
        elif recorded["kind"] == "classmethod":
            members[name] = classmethod(lambda cls, *arguments, **named: None)
        elif recorded.get("abstract"):
            members[name] = abstractmethod(lambda self, *arguments, **named: None)
        else:
            members[name] = lambda self, *arguments, **named: None
    members |= {
        "bind_connector_metadata": bind,
        "clear_connector_metadata": clear,
        "take_unavailable_requests": lambda self: set(),
        "has_pending_push_work": lambda self: False,
    }
    return type("ECConnectorBase", (ABC,), members)


class Stats:
    def __init__(self, data: dict | None = None) -> None:
        self.data = data or {}


class Series:
    """A counter or gauge, and its labelled children."""

    made: list["Series"] = []

    def __init__(self, name: str, documentation: str, labelnames: list[str], multiprocess_mode: str = "") -> None:
        self.name, self.documentation, self.labelnames = name, documentation, labelnames
        self.numbers: dict[tuple, int] = {}
        Series.made.append(self)

    def labels(self, *values: Any) -> Any:
        assert len(values) == len(self.labelnames), (self.name, values)
        return SimpleNamespace(inc=lambda by: self._put(values, self.numbers.get(values, 0) + by), set=lambda to: self._put(values, to))

    def _put(self, values: tuple, number: int) -> None:
        self.numbers[values] = number


class PromMetrics:
    """vLLM's base class of a connector's metrics."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict) -> None:
        self._counter_cls = self._gauge_cls = Series
        self._labelnames, self.per_engine_labelvalues = labelnames, per_engine_labelvalues


class Resolver:
    def __init__(self, model_config: Any) -> None:
        self.model_config = model_config


def collect(features: list, resolver: Any) -> dict[str, dict]:
    items: dict[str, dict] = {}
    for index, feature in enumerate(features):
        item = items.setdefault(feature.identifier, {"item_indices": [], "metadata": {}})
        item["item_indices"].append(index)
    return items


# -- PyTorch -----------------------------------------------------------------------------------------

SIZES = {"bfloat16": 2, "float16": 2, "float32": 4, "int8": 1}


class DType:
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """A dense tensor, or one with gaps between its rows (`stride`)."""

    def __init__(self, shape: Any, dtype: DType, content: bytes | None = None, device: str = "cpu") -> None:
        self.shape, self.dtype = tuple(shape), dtype
        self.device = SimpleNamespace(type=device)
        self.nbytes = SIZES[dtype.name]
        for dimension in self.shape:
            self.nbytes *= dimension
        self._buffer = ctypes.create_string_buffer(content or b"", max(1, self.nbytes))
        self._contiguous = True

    def data_ptr(self) -> int:
        return ctypes.addressof(self._buffer)

    def is_contiguous(self) -> bool:
        return self._contiguous

    def contiguous(self) -> "Tensor":
        return Tensor(self.shape, self.dtype, self.content()) if not self._contiguous else self

    def with_gaps(self) -> "Tensor":
        """The same values in a layout that must not be read as it lies there."""
        gapped = Tensor(self.shape, self.dtype, self.content())
        gapped._contiguous = False
        return gapped

    def detach(self) -> "Tensor":
        return self

    def to(self, device: Any) -> "Tensor":
        return Tensor(self.shape, self.dtype, self.content(), str(device))

    def content(self) -> bytes:
        return self._buffer.raw[: self.nbytes]


def torch_module() -> types.ModuleType:
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    for name in SIZES:
        setattr(torch, name, DType(name))
    torch.empty = lambda shape, dtype: Tensor(shape, dtype, b"\xa5" * 16)
    return torch


def install() -> types.ModuleType:
    """Puts the stand-ins where the connector imports them from; the connector's module."""
    where = "vllm.distributed.ec_transfer.ec_connector"
    base, metrics, utils = (types.ModuleType(f"{where}.{name}") for name in ("base", "metrics", "utils"))
    base.ECConnectorBase, base.ECConnectorRole = base_class(), Role
    base.ECConnectorMetadata = type("ECConnectorMetadata", (ABC,), {})
    base.ECConnectorWorkerMetadata = type("ECConnectorWorkerMetadata", (ABC,), {})
    metrics.ECConnectorPromMetrics = PromMetrics
    metrics.ECConnectorStats = Stats
    utils.PlaceholderMetadataResolver, utils.collect_ec_item_metadata = Resolver, collect
    logger, platforms = types.ModuleType("vllm.logger"), types.ModuleType("vllm.platforms")
    logger.init_logger = logging.getLogger
    platforms.current_platform = SimpleNamespace(device_type="cpu")
    package = "vllm"
    for part in ("", ".distributed", ".ec_transfer", ".ec_connector"):
        package += part
        sys.modules[package] = types.ModuleType(package)
    for module in (base, metrics, utils, logger, platforms):
        sys.modules[module.__name__] = module
    sys.modules["torch"] = torch_module()
    import springtide.vllm

    return springtide.vllm


# -- what the engine hands to the connector ------------------------------------------------------------


def vllm_config(role: str, settings: dict, **changes: Any) -> SimpleNamespace:
    """As much of vLLM's configuration as the connector reads. `changes`: engine, rank, ranks, model."""
    hf_config = SimpleNamespace(hidden_size=8, to_dict=lambda: {"vision_config": {"depth": 1}})
    model = {"model": "tiny", "dtype": DType("bfloat16"), "revision": "r1", "hf_config": hf_config}
    model |= {"multimodal_config": None, "quantization": None} | changes.get("model", {})
    return SimpleNamespace(
        model_config=SimpleNamespace(**model),
        parallel_config=SimpleNamespace(rank=changes.get("rank", 0), tensor_parallel_size=changes.get("ranks", 1)),
        lora_config=None,
        ec_transfer_config=SimpleNamespace(
            ec_role=role,
            is_ec_producer=role != "ec_consumer",
            is_ec_consumer=role != "ec_producer",
            engine_id=changes.get("engine", "engine"),
            ec_ip="127.0.0.1",
            ec_connector_extra_config=settings,
        ),
    )


class Request:
    """A request with media items, one behind the other: (identifier, rows)."""

    def __init__(self, request_id: str, *items: tuple[str, int], **more: Any) -> None:
        self.request_id, self.mm_features, self._rows = request_id, [], []
        self.ec_transfer_params = more.get("ec_transfer_params")
        offset = 1
        for identifier, rows in items:
            position = SimpleNamespace(offset=offset, length=rows)
            self.mm_features.append(SimpleNamespace(identifier=identifier, mm_position=position, modality="image"))
            self._rows.append(rows)
            offset += rows + 1

    def get_num_encoder_embeds(self, index: int) -> int:
        return self._rows[index]
