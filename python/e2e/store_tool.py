"""What a stranger does to objects of the real store.

    python store_tool.py MASTER size KEY            its length, or the store's code
    python store_tool.py MASTER remove KEY
    python store_tool.py MASTER truncate KEY        puts all but its last 5 bytes in its place
    python store_tool.py MASTER overwrite KEY FROM  puts another object's bytes in its place
"""

import sys

from mooncake.store import MooncakeDistributedStore


def main(master: str, command: str, key: str, *rest: str) -> int:
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", master)
    assert code == 0, f"setup: {code}"
    if command == "size":
        print(store.get_size(key))
    elif command == "remove":
        assert store.remove(key, True) == 0
    else:
        content = store.get(key)[:-5] if command == "truncate" else store.get(*rest)
        assert content, "nothing to put in its place"
        assert store.remove(key, True) == 0
        assert store.put(key, content) == 0
        assert store.get_size(key) == len(content)
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    # Its threads would be waited for.
    import os

    os._exit(code)
