"""The hooks of vLLM's `ECConnectorBase`, as they are and as they were recorded.

    python hooks.py record   writes hooks.json from the installed vLLM
    python hooks.py compare  ends with 1 and says what differs

The recorded list is what the tests without vLLM check the connector against; `compare` keeps it true.
"""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("hooks.json")


def recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text())


def installed() -> dict[str, Any]:
    """Every public name of the installed base class, with its parameters."""
    import vllm
    from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase

    hooks = {}
    for name, member in inspect.getmembers_static(ECConnectorBase):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            hooks[name] = {"kind": "property"}
            continue
        kind = "classmethod" if isinstance(member, classmethod) else "method"
        function = getattr(member, "__func__", member)
        parameters = [str(p).split(":")[0].split("=")[0].strip() for p in inspect.signature(function).parameters.values()]
        hooks[name] = {"kind": kind, "parameters": parameters}
        if getattr(function, "__isabstractmethod__", False):
            hooks[name]["abstract"] = True
    return {"vllm": vllm.__version__, "hooks": hooks}


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed, a line each."""
    lines = [f"new hook {name}: decide what it means for the connector" for name in sorted(now.keys() - before.keys())]
    lines += [f"hook {name} is gone" for name in sorted(before.keys() - now.keys())]
    changed = (name for name in sorted(before.keys() & now.keys()) if before[name] != now[name])
    return lines + [f"hook {name} was {before[name]}, is {now[name]}" for name in changed]


def main(arguments: list[str]) -> int:
    if arguments == ["record"]:
        RECORDED.write_text(json.dumps(installed(), indent=1, sort_keys=True) + "\n")
        return 0
    if arguments == ["compare"]:
        found = differences(recorded()["hooks"], installed()["hooks"])
        print("\n".join(found) or "the installed vLLM has the recorded hooks")
        return 1 if found else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
