"""Puts faults between the connector and the real Mooncake class, in processes that have this on their path.

`SPRINGTIDE_FAULTS` names a file of JSON that is read before every call: for a method of
`MooncakeDistributedStore`, what to do instead or before. Without the variable, or the file, nothing happens.

    {"batch_put_from_multi_buffers": {"return": -200}}            refuses every item
    {"batch_put_from_multi_buffers": {"raise": "on purpose"}}
    {"batch_get_into_multi_buffers": {"remove_first": true}}      the items go after the lookup
    {"batch_get_into_multi_buffers": {"sleep_s": 5}}              and says so: it makes the file `….called`
"""

import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODULE = "mooncake.store"
METHODS = ("batch_put_from_multi_buffers", "batch_get_into_multi_buffers", "batch_is_exist")


def faults(method: str) -> dict[str, Any]:
    try:
        return json.loads(Path(os.environ["SPRINGTIDE_FAULTS"]).read_text()).get(method, {})
    except FileNotFoundError:
        return {}


def faulty(name: str, method: Any) -> Any:
    @functools.wraps(method)
    def call(self: Any, keys: list[str], *rest: Any) -> Any:
        fault = faults(name)
        if "raise" in fault:
            raise RuntimeError(fault["raise"])
        if "return" in fault:
            return [fault["return"]] * len(keys)
        if "sleep_s" in fault:
            Path(os.environ["SPRINGTIDE_FAULTS"] + ".called").touch()
            time.sleep(fault["sleep_s"])
        if fault.get("remove_first"):
            for key in keys:
                self.remove(key, True)
        return method(self, keys, *rest)

    return call


class Finder(importlib.abc.MetaPathFinder):
    """Changes the class when its module has been loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            real = module.MooncakeDistributedStore
            changed = {name: faulty(name, getattr(real, name)) for name in METHODS}
            module.MooncakeDistributedStore = type("FaultyStore", (real,), changed)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("SPRINGTIDE_FAULTS"):
    sys.meta_path.insert(0, Finder())
