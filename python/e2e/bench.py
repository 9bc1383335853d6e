"""What a request costs with each way of sharing encoder outputs, on CPU.

    python bench.py [--requests N] [--rounds N] [--concurrency N] [--size PIXELS] [WAY...]

Ways: `single` (one instance that does all), `example` (vLLM's ECExampleConnector, files), `disk` and `tcp`
(springtide over a directory, and over the real Mooncake Store). All run at the same time and take turns, in
another order each round, with the same images; `single` has one processor, the others one for each of their
two instances. The encoder is a single layer, so that what is measured is not drowned by encoding. Prints a
table in Markdown: the first round of images that nobody has seen, then the same images again.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiny_model
from checks import MODEL, transfer
from clients import LIMIT_S, ask, chat, image
from processes import Master, Process, Server, Vllm, free_port

WAYS = ("single", "example", "disk", "tcp")
TOKENS = 16


@dataclass
class Sample:
    """One streamed request, in milliseconds."""

    first: float
    whole: float
    between: float


def measure(url: str, body: dict[str, Any]) -> Sample:
    data = json.dumps({**body, "stream": True}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", data, {"Content-Type": "application/json"})
    started, times, tokens = time.perf_counter(), [], 0
    with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
        assert response.status == 200
        for line in response:
            choices = json.loads(line[6:])["choices"] if line.startswith(b"data: {") else []
            # An event has several tokens where the client was slower than the engine; the first has none.
            new = sum(len(choice["logprobs"]["content"]) for choice in choices if choice.get("logprobs"))
            if new:
                tokens += new
                times.append((time.perf_counter() - started) * 1e3)
    assert tokens == TOKENS, f"{tokens} tokens"
    return Sample(times[0], times[-1], (times[-1] - times[0]) / (TOKENS - 1))


class Way:
    """The instances of one way, behind a proxy if there are two."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.processes = name, []
        self.master: Master | None = None
        self.seconds = {"new": 0.0, "again": 0.0}
        self.samples: dict[str, list[Sample]] = {"new": [], "again": []}
        if name == "single":
            self.processes = [Vllm("bench-single", MODEL, "0")]
            return
        for role, cpu in (("ec_producer", "0"), ("ec_consumer", "1")):
            self.processes.append(Vllm(f"bench-{name}-{role}", MODEL, cpu, self.transfer(role, directory)))

    def transfer(self, role: str, directory: Path) -> dict[str, Any]:
        if self.name == "example":
            directory = directory / "example"
            directory.mkdir(exist_ok=True)
            extra = {"shared_storage_path": str(directory)}
            return {"ec_connector": "ECExampleConnector", "ec_role": role, "ec_connector_extra_config": extra}
        if self.name == "disk":
            return transfer(role, {"disk": {"directory": str(directory / "disk"), "capacity_bytes": 4 << 30}})
        self.master = self.master or Master(free_port()).start()
        segment = (1 << 30) if role == "ec_producer" else 0
        client = {"master": self.master.address, "segment_bytes": segment, "local_buffer_bytes": 16 << 20}
        return transfer(role, {"mooncake": client}, pool_bytes=512 << 20)

    def wait_ready(self) -> None:
        for process in self.processes:
            process.wait_ready()
        self.url = self.processes[-1].url
        if len(self.processes) == 2:
            port = free_port()
            command = [sys.executable, "-m", "springtide.proxy", "--port", str(port)]
            command += ["--encoder", self.processes[0].url, "--decoder", self.processes[1].url]
            self.processes.append(Server(f"bench-{self.name}-proxy", port, command).wait_ready())
            self.url = self.processes[-1].url
        # Kernels are made ready by the first requests.
        for seed in range(3):
            assert ask(self.url, chat(image(90_000 + seed), tokens=2)).status == 200

    def turn(self, what: str, bodies: list[dict[str, Any]], concurrency: int) -> None:
        started = time.perf_counter()
        with ThreadPoolExecutor(concurrency) as pool:
            self.samples[what] += pool.map(lambda body: measure(self.url, body), bodies)
        self.seconds[what] += time.perf_counter() - started

    def encoded(self) -> int:
        decoder = self.processes[0 if self.name == "single" else 1]
        assert isinstance(decoder, Vllm)
        return decoder.encoded()

    def stop(self) -> None:
        for process in reversed(self.processes):
            Process.stop(process)
        if self.master is not None:
            self.master.stop()


def row(way: Way, what: str, base: "Way | None") -> str:
    samples = way.samples[what]
    cells = [way.name, f"{len(samples) / way.seconds[what]:.2f}"]
    for values in ([s.first for s in samples], [s.whole for s in samples]):
        hundredths = statistics.quantiles(values, n=100, method="inclusive")
        cells.append(f"{statistics.mean(values):.0f} / {hundredths[49]:.0f} / {hundredths[98]:.0f}")
    cells.append(f"{statistics.mean(s.between for s in samples):.1f}")
    mean = statistics.mean(s.first for s in samples)
    cells.append(f"{mean / statistics.mean(s.first for s in base.samples[what]):.2f}" if base else "–")
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], metavar="WAY")
    parser.add_argument("--requests", type=int, default=8, help="in each turn")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--size", type=int, default=1092)
    options = parser.parse_args()
    tiny_model.write(MODEL)
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as directory:
        ways = [Way(name, Path(directory)) for name in options.ways or WAYS]
        try:
            for way in ways:
                way.wait_ready()
            rounds(ways, options)
            encoded = {way.name: way.encoded() for way in ways}
        finally:
            for way in ways:
                way.stop()
    base = next((way for way in ways if way.name == "example"), None)
    for what, title in (("new", "Images that nobody has seen"), ("again", "The same images again")):
        print(f"\n{title}:\n")
        print("| way | requests/s | TTFT ms, mean / p50 / p99 | end to end ms, mean / p50 / p99 | TPOT ms | TTFT to `example` |")
        print("|---|---|---|---|---|---|")
        for way in ways:
            print(row(way, what, base))
    print(f"\nItems encoded by the instance that decodes: {encoded}")
    return 0


def rounds(ways: list[Way], options: argparse.Namespace) -> None:
    for number in range(options.rounds):
        seeds = range(100_000 + number * options.requests, 100_000 + (number + 1) * options.requests)
        bodies = [chat(image(seed, options.size), tokens=TOKENS) for seed in seeds]
        order = ways[number % len(ways) :] + ways[: number % len(ways)]
        for what in ("new", "again"):
            for way in order:
                way.turn(what, bodies, options.concurrency)
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
