"""One client of the real store, told what to do line by line. Started by the conformance tests.

Its only argument is JSON: {"master": ADDRESS, "hostname": HOST:PORT, "segment": BYTES, "local_buffer": BYTES}.
It says {"ready": CODE, "version": TEXT} and then answers each line of JSON with one.
"""

import ctypes
import importlib.metadata
import json
import os
import sys
import zlib

from mooncake import store as mooncake

ARENA_BYTES = 64 << 20
REGISTERED_BYTES = 1 << 20
# Between any two pieces of memory; nothing may touch it.
GUARD = 64
UNTOUCHED = 0xAA


def main():
    # The store's own threads print to the standard output: it goes where errors go.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    config = json.loads(sys.argv[1])
    peer = Peer()
    code = peer.store.setup(
        config["hostname"], "P2PHANDSHAKE", config["segment"], config["local_buffer"], "tcp", "", config["master"]
    )
    version = importlib.metadata.version("mooncake-transfer-engine-non-cuda")
    print(json.dumps({"ready": code, "version": version}), file=answers)
    for line in sys.stdin:
        (name, arguments), = json.loads(line).items()
        print(json.dumps(getattr(peer, name)(**arguments)), file=answers)


class Peer:
    def __init__(self):
        self.store = mooncake.MooncakeDistributedStore()
        self.arena = (ctypes.c_ubyte * ARENA_BYTES)()
        self.base = ctypes.addressof(self.arena)
        self.registered = ctypes.addressof((ctypes.c_ubyte * REGISTERED_BYTES).from_buffer(bytearray(REGISTERED_BYTES)))

    # -- questions

    def is_exist(self, key):
        return codes([self.store.is_exist(key)])

    def batch_is_exist(self, keys):
        return codes(self.store.batch_is_exist(keys))

    def get_size(self, key):
        return codes([self.store.get_size(key)])

    def health_check(self):
        return codes([self.store.health_check()])

    # -- gets

    def get(self, key):
        value = self.store.get(key)
        return {"codes": [len(value)], "memory": [zlib.crc32(value)], "overrun": False}

    def get_into(self, room):
        layout = self.rooms([room], False)
        (address,), (size,) = layout[0]
        return self.seen([self.store.get_into(room["key"], address, size)], layout)

    def batch_get_into(self, rooms):
        layout = self.rooms(rooms, False)
        addresses = [place[0][0] for place in layout]
        sizes = [place[1][0] for place in layout]
        return self.seen(self.store.batch_get_into(keys(rooms), addresses, sizes), layout)

    def batch_get_into_multi_buffers(self, rooms):
        layout = self.rooms(rooms, True)
        addresses, sizes = [place[0] for place in layout], [place[1] for place in layout]
        return self.seen(self.store.batch_get_into_multi_buffers(keys(rooms), addresses, sizes), layout)

    # -- puts

    def put(self, object, keep):
        return codes([self.store.put(object["key"], value(object), config(keep))])

    def put_from(self, object, keep):
        (address,), (size,) = self.sources([object], False)[0]
        return codes([self.store.put_from(object["key"], address, size, config(keep))])

    def put_parts(self, object, keep):
        return codes([self.store.put_parts(object["key"], *pieces(object), config=config(keep))])

    def put_batch(self, objects, keep):
        return codes([self.store.put_batch(keys(objects), [value(object) for object in objects], config(keep))])

    def batch_put_from(self, objects, keep):
        layout = self.sources(objects, False)
        addresses = [place[0][0] for place in layout]
        sizes = [place[1][0] for place in layout]
        return codes(self.store.batch_put_from(keys(objects), addresses, sizes, config(keep)))

    def batch_put_from_multi_buffers(self, objects, keep):
        layout = self.sources(objects, True)
        addresses, sizes = [place[0] for place in layout], [place[1] for place in layout]
        return codes(self.store.batch_put_from_multi_buffers(keys(objects), addresses, sizes, config(keep)))

    def upsert(self, object, keep):
        return codes([self.store.upsert(object["key"], value(object), config(keep))])

    def start(self, key, bytes, keep):
        return codes(self.store.batch_put_session_start([key], [bytes], config(keep)))

    def end(self, key):
        return codes(self.store.batch_put_session_end([key]))

    def revoke(self, key):
        return codes(self.store.batch_put_session_revoke([key]))

    # -- removals, memory, the end

    def remove(self, key, force):
        return codes([self.store.remove(key, force)])

    def batch_remove(self, keys, force):
        return codes(self.store.batch_remove(keys, force))

    def remove_by_regex(self, pattern, force):
        return codes([self.store.remove_by_regex(pattern, force)])

    def remove_all(self, force):
        return codes([self.store.remove_all(force)])

    def register_buffer(self, at, bytes):
        return codes([self.store.register_buffer(self.registered + at, bytes)])

    def unregister_buffer(self, at):
        return codes([self.store.unregister_buffer(self.registered + at)])

    def close(self):
        return codes([self.store.close()])

    # -- memory

    def place(self, items, scattered):
        """Addresses and sizes of each item's pieces, with guards between them."""
        at, layout = GUARD, []
        for item in items:
            sizes = item["parts"] if scattered else [sum(item["parts"])]
            addresses = []
            for size in sizes:
                addresses.append(self.base + at)
                at += size + GUARD
            layout.append((addresses, sizes))
        assert at <= ARENA_BYTES, f"{at} bytes do not fit the arena"
        self.used = at
        return layout

    def sources(self, objects, scattered):
        layout = self.place(objects, scattered)
        for object, (addresses, sizes) in zip(objects, layout):
            content, at = value(object), 0
            for address, size in zip(addresses, sizes):
                ctypes.memmove(address, content[at : at + size], size)
                at += size
        return layout

    def rooms(self, rooms, scattered):
        layout = self.place(rooms, scattered)
        ctypes.memset(self.base, UNTOUCHED, self.used)
        return layout

    def seen(self, results, layout):
        """What came back, what lies in the memory, and whether the guards are whole."""
        memory, end, overrun = [], self.base, False
        for addresses, sizes in layout:
            checksum = 0
            for address, size in zip(addresses, sizes):
                overrun |= ctypes.string_at(end, address - end) != bytes([UNTOUCHED]) * (address - end)
                checksum = zlib.crc32(ctypes.string_at(address, size), checksum)
                end = address + size
            memory.append(checksum)
        tail = self.base + self.used - end
        overrun |= ctypes.string_at(end, tail) != bytes([UNTOUCHED]) * tail
        return {"codes": list(results), "memory": memory, "overrun": overrun}


def codes(results):
    return {"codes": list(results), "memory": [], "overrun": False}


def keys(items):
    return [item["key"] for item in items]


def value(object):
    period = bytes((object["seed"] + i * 7) % 256 for i in range(251))
    size = sum(object["parts"])
    return (period * (size // len(period) + 1))[:size]


def pieces(object):
    content, at, parts = value(object), 0, []
    for size in object["parts"]:
        parts.append(content[at : at + size])
        at += size
    return parts


def config(keep):
    config = mooncake.ReplicateConfig()
    config.replica_num = keep["replicas"]
    if keep["soft_pin"]:
        config.soft_pin_action = mooncake.SoftPinAction.ENABLE
    config.with_hard_pin = keep["hard_pin"]
    if keep["prefer"] is not None:
        config.preferred_segments = [keep["prefer"]]
    return config


main()
