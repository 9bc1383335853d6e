"""`mooncake.store` with objects in a dictionary, and a word about who calls it.

Not a model of the store: just enough to see what the connector does with its threads and the interpreter.
"""

import ctypes
import sys
import threading
import types
from types import SimpleNamespace


class Store:
    """One client; all share `objects`."""

    objects: dict[str, bytes] = {}
    # Threads that have made a call, by method.
    callers: list[tuple[str, int]] = []
    # Puts wait for it.
    gate = threading.Event()
    # What every call returns, if anything.
    failure = 0

    def _called(self, method: str) -> int:
        Store.callers.append((method, threading.get_ident()))
        return Store.failure

    def setup(self, *arguments: object) -> int:
        return self._called("setup")

    def close(self) -> int:
        return self._called("close")

    def register_buffer(self, address: int, length: int) -> int:
        return self._called("register")

    def unregister_buffer(self, address: int) -> int:
        return self._called("unregister")

    def batch_put_from_multi_buffers(self, keys: list, addresses: list, sizes: list, config: object) -> list:
        failure = self._called("put")
        # As the real one lets go of the interpreter while it moves bytes.
        assert Store.gate.wait(60), "nobody could open the gate: was the interpreter held?"
        for key, parts, lengths in zip(keys, addresses, sizes, strict=True):
            Store.objects.setdefault(key, b"".join(map(ctypes.string_at, parts, lengths)))
        return [failure] * len(keys)

    def batch_get_into_multi_buffers(self, keys: list, addresses: list, sizes: list) -> list:
        failure = self._called("get")
        results = []
        for key, parts, lengths in zip(keys, addresses, sizes, strict=True):
            value = Store.objects.get(key)
            if failure or value is None or len(value) != sum(lengths):
                results.append(failure or -704)
                continue
            for part, length in zip(parts, lengths, strict=True):
                ctypes.memmove(part, value[:length], length)
                value = value[length:]
            results.append(sum(lengths))
        return results

    def batch_is_exist(self, keys: list) -> list:
        failure = self._called("exists")
        return [failure or int(key in Store.objects) for key in keys]

    def get_size(self, key: str) -> int:
        failure = self._called("size")
        return failure or (len(Store.objects[key]) if key in Store.objects else -704)

    def remove(self, key: str, force: bool) -> int:
        Store.objects.pop(key, None)
        return self._called("remove")


def install() -> type[Store]:
    module = types.ModuleType("mooncake.store")
    module.MooncakeDistributedStore = Store
    module.ReplicateConfig = lambda: SimpleNamespace()
    sys.modules["mooncake"] = types.ModuleType("mooncake")
    sys.modules["mooncake.store"] = module
    return Store
