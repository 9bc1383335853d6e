"""The connector, with a note of every call that vLLM makes: where the recorded traces come from.

`SPRINGTIDE_TRACE` names a directory; each process writes its calls there, a JSON object a line, with the time
(which all processes share) and the step that metadata and acknowledgements belong to.
"""

import functools
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole

from springtide.vllm import SpringtideConnector

HOOKS = [
    *("ensure_cache_available", "has_cache_item", "update_state_after_alloc", "build_connector_meta"),
    *("update_connector_output", "take_unavailable_requests", "request_finished", "update_state_after_free"),
    *("bind_connector_metadata", "start_save_caches", "start_load_caches", "save_caches", "get_finished"),
    *("build_connector_worker_meta", "clear_connector_metadata"),
]


def request(value: Any) -> dict[str, Any]:
    items = [
        [feature.identifier, value.get_num_encoder_embeds(index), feature.mm_position.offset, feature.mm_position.length]
        for index, feature in enumerate(value.mm_features)
    ]
    return {"request": value.request_id, "items": items}


def plain(value: Any) -> Any:
    """As much of an argument or a result as a replay needs."""
    if hasattr(value, "mm_features") and hasattr(value, "request_id"):
        return request(value)
    if hasattr(value, "free_encoder_mm_hashes"):
        return {"freed": list(value.free_encoder_mm_hashes)}
    if hasattr(value, "ec_connector_worker_meta"):
        return plain(value.ec_connector_worker_meta)
    if hasattr(value, "step"):
        return {"step": value.step}
    if isinstance(value, dict):
        return sorted(value)
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return value if isinstance(value, str | int | bool | type(None)) else type(value).__name__


class RecordingConnector(SpringtideConnector):
    """Writes each hook's arguments and result."""

    def __init__(self, vllm_config: Any, role: ECConnectorRole) -> None:
        super().__init__(vllm_config, role)
        directory = Path(os.environ["SPRINGTIDE_TRACE"])
        directory.mkdir(parents=True, exist_ok=True)
        self._trace = (directory / f"{role.name.lower()}.jsonl").open("a", buffering=1)
        self._steps, self._answers = itertools.count(), {}

    def note(self, hook: str, arguments: list[Any], result: Any) -> None:
        if hook == "ensure_cache_available":
            # Asked for again and again while it waits: only a change says something.
            name = arguments[0]["request"]
            if self._answers.get(name) == result:
                return
            self._answers[name] = result
        line = {"time": time.monotonic(), "hook": hook, "arguments": arguments, "result": result}
        self._trace.write(json.dumps(line) + "\n")


def recorded(hook: str) -> Any:
    method = getattr(SpringtideConnector, hook)

    @functools.wraps(method)
    def call(self: RecordingConnector, *arguments: Any, **named: Any) -> Any:
        before = [plain(argument) for argument in (*arguments, *named.values())]
        result = method(self, *arguments, **named)
        if hook == "build_connector_meta":
            result.step = next(self._steps)
        if hook == "build_connector_worker_meta" and result is not None:
            result.step = self._connector_metadata.step
        after = plain(result)
        if hook in ("start_load_caches", "start_save_caches"):
            # What the cache holds afterwards.
            after = plain(arguments[0] if arguments else named["encoder_cache"])
        if hook == "bind_connector_metadata":
            after = getattr(arguments[0], "plan", "") != ""
        self.note(hook, before, after)
        return result

    return call


for _hook in HOOKS:
    setattr(RecordingConnector, _hook, recorded(_hook))
