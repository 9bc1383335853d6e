"""Connectors whose hooks are timed: what each costs the engine's own threads.

`SPRINGTIDE_HOOK_TIMES` names a directory; each process keeps a JSON file there, `scheduler-PID.json` or
`worker-PID.json`: by hook, how often it was called and how many seconds it took in all.
"""

import functools
import json
import os
import time
from pathlib import Path
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.example_connector import ECExampleConnector

from springtide.vllm import SpringtideConnector

SCHEDULER = [
    *("ensure_cache_available", "has_cache_item", "update_state_after_alloc", "build_connector_meta"),
    *("update_connector_output", "take_unavailable_requests", "request_finished", "update_state_after_free"),
]
WORKER = [
    *("bind_connector_metadata", "start_save_caches", "start_load_caches", "save_caches", "get_finished"),
    *("build_connector_worker_meta", "clear_connector_metadata"),
]
# The last of a step that has had an item, on either side: what was counted is written then.
LAST = ("request_finished", "clear_connector_metadata")


class Times:
    """Of one process."""

    def __init__(self, role: ECConnectorRole) -> None:
        directory = Path(os.environ["SPRINGTIDE_HOOK_TIMES"])
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{role.name.lower()}-{os.getpid()}.json"
        self.hooks: dict[str, list[float]] = {}

    def count(self, hook: str, seconds: float) -> None:
        entry = self.hooks.setdefault(hook, [0, 0.0])
        entry[0] += 1
        entry[1] += seconds

    def write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.hooks))
        new.rename(self.path)


def timed(base: type, hook: str) -> Any:
    method = getattr(base, hook)

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return method(self, *arguments, **named)
        finally:
            self._times.count(hook, time.perf_counter() - started)
            if hook in LAST:
                self._times.write()

    return call


def with_times(base: type) -> type:
    """The connector with its hooks timed."""

    def start(self: Any, vllm_config: Any, role: ECConnectorRole) -> None:
        base.__init__(self, vllm_config, role)
        self._times = Times(role)

    hooks = {hook: timed(base, hook) for hook in SCHEDULER + WORKER}
    return type(f"Timed{base.__name__}", (base,), {"__init__": start, "__module__": __name__, **hooks})


TimedSpringtideConnector = with_times(SpringtideConnector)
TimedECExampleConnector = with_times(ECExampleConnector)
