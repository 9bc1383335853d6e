"""Records what real vLLM calls: writes python/tests/plugin/traces, which the tests without vLLM replay.

    python record.py

An encoder and a decoder over a directory: a plain image, two in a request, a repeated one, one that only the
decoder sees, text, a client that hangs up.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import tiny_model
from checks import MODEL, transfer
from clients import ask, ask_and_leave, chat, image
from processes import HERE, LOGS, ROOT, Vllm, wait_until

TRACES = ROOT / "python/tests/plugin/traces"


def main() -> int:
    tiny_model.write(MODEL)
    with tempfile.TemporaryDirectory(prefix="springtide-record-") as directory:
        store = {"disk": {"directory": directory, "capacity_bytes": 1 << 30}}
        instances = []
        for role, cpu in (("ec_producer", "0"), ("ec_consumer", "1")):
            traces = LOGS / "trace" / role
            shutil.rmtree(traces, ignore_errors=True)
            config = transfer(role, store, pool_bytes=64 << 20)
            config |= {"ec_connector": "RecordingConnector", "ec_connector_module_path": "recorder"}
            environment = {"PYTHONPATH": str(HERE), "SPRINGTIDE_TRACE": str(traces)}
            instances.append(Vllm(f"record-{role}", MODEL, cpu, config, environment=environment))
        try:
            for instance in instances:
                instance.wait_ready()
            scenario(*instances)
        finally:
            for instance in instances:
                instance.stop()
    TRACES.mkdir(exist_ok=True)
    for role in ("ec_producer", "ec_consumer"):
        lines = reduced(merged(LOGS / "trace" / role))
        (TRACES / f"{role}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        print(f"{role}: {len(lines)} calls")
    return 0


def scenario(encoder: Vllm, decoder: Vllm) -> None:
    both = [chat(image(1)), chat(image(2), image(3)), chat(image(1)), chat()]
    for body in both:
        for instance in (encoder, decoder):
            assert ask(instance.url, body).status == 200
    assert ask(decoder.url, chat(image(4))).status == 200
    ask_and_leave(decoder.url, chat(image(3), tokens=200))
    wait_until("the request is aborted", lambda: decoder.metrics().count('num_requests_running{') and running(decoder) == 0)
    assert ask(decoder.url, chat(image(2))).status == 200


def running(instance: Vllm) -> float:
    lines = [line for line in instance.metrics().splitlines() if line.startswith("vllm:num_requests_running{")]
    return sum(float(line.split()[-1]) for line in lines)


def merged(directory: Path) -> list[dict[str, Any]]:
    """The calls of all processes of an instance, in their order."""
    calls = [json.loads(line) for path in directory.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(calls, key=lambda call: call["time"])


def reduced(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the steps in which nothing happens, and with short names."""
    used = {call["arguments"][0]["step"] for call in calls if call["hook"] == "bind_connector_metadata"}
    kept, names = [], {}
    for call in calls:
        idle = call["hook"] == "build_connector_meta" and call["result"]["step"] not in used
        if idle and not call["arguments"][0]["freed"] or call["hook"] == "take_unavailable_requests":
            continue
        text = json.dumps({name: call[name] for name in ("hook", "arguments", "result")})
        for word in [part for part in text.split('"') if len(part) == 64 or part.startswith("chatcmpl-")]:
            names.setdefault(word, f"{'item' if len(word) == 64 else 'request'}-{len(names)}")
        for word, short in names.items():
            text = text.replace(word, short)
        kept.append(json.loads(text))
    return kept


if __name__ == "__main__":
    sys.exit(main())
