"""What a request costs with each way of sharing encoder outputs, on CPU.

    python bench.py [--requests N] [--rounds N] [--concurrency N] [--size PIXELS] [WAY...]

Ways: `single` (one instance that does all), `example` (vLLM's ECExampleConnector, files), `disk` and `tcp`
(springtide over a directory, and over the real Mooncake Store), `once` (as `disk`, with `encode_once`; only if
it is asked for). All run at the same time and take turns, in another order each round, with the same images;
`single` has one processor, the others one for each of their two instances. The encoder is a single layer, so
that what is measured is not drowned by encoding.

Prints tables in Markdown: the first round of images that nobody has seen, then the same images again; what the
hooks of each connector cost the engine's own threads; and how long springtide's calls of the store took.
"""

import argparse
import json
import re
import shutil
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
from processes import HERE, LOGS, Master, Process, Server, Vllm, free_port

WAYS = ("single", "example", "disk", "tcp")
MORE_WAYS = ("once",)
# Of the encoder's worker, of the decoder's, and of both schedulers.
SAVING = ("bind_connector_metadata", "start_save_caches", "save_caches")
WAITING = ("get_finished",)
LOADING = ("bind_connector_metadata", "start_load_caches", "get_finished", "build_connector_worker_meta")
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
            times = LOGS / "hook-times" / name / role
            shutil.rmtree(times, ignore_errors=True)
            environment = {"PYTHONPATH": str(HERE), "SPRINGTIDE_HOOK_TIMES": str(times)}
            config = {**self.transfer(role, directory), "ec_connector_module_path": "timed"}
            config["ec_connector"] = f"Timed{config['ec_connector']}"
            self.processes.append(Vllm(f"bench-{name}-{role}", MODEL, cpu, config, environment=environment))

    def transfer(self, role: str, directory: Path) -> dict[str, Any]:
        if self.name == "example":
            directory = directory / "example"
            directory.mkdir(exist_ok=True)
            extra = {"shared_storage_path": str(directory)}
            return {"ec_connector": "ECExampleConnector", "ec_role": role, "ec_connector_extra_config": extra}
        more: dict[str, Any] = {"metrics": {"listen": "127.0.0.1:0"}}
        if self.name in ("disk", "once"):
            disk = {"directory": str(directory / self.name), "capacity_bytes": 4 << 30}
            return transfer(role, {"disk": disk}, encode_once=self.name == "once", **more)
        self.master = self.master or Master(free_port()).start()
        segment = (1 << 30) if role == "ec_producer" else 0
        client = {"master": self.master.address, "segment_bytes": segment, "local_buffer_bytes": 16 << 20}
        return transfer(role, {"mooncake": client}, pool_bytes=512 << 20, **more)

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

    def hooks(self) -> dict[str, dict[str, tuple[int, float]]]:
        """By instance and side, `ec_producer/worker`: how often each hook was called, and its seconds."""
        found = {}
        for path in sorted((LOGS / "hook-times" / self.name).glob("*/*.json")):
            side = f"{path.parent.name}/{path.name.partition('-')[0]}"
            found[side] = {hook: (int(calls), spent) for hook, (calls, spent) in json.loads(path.read_text()).items()}
        return found

    def stages(self) -> dict[str, tuple[int, float]]:
        """How often each stage of springtide's saves and loads was taken, and its seconds."""
        totals: dict[str, tuple[int, float]] = {}
        if self.name not in ("disk", "once", "tcp"):
            return totals
        for process in self.processes[:2]:
            for address in set(re.findall(r"serving /metrics, address: ([0-9.:]+)", process.text())):
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as response:
                    text = response.read().decode()
                for stage, count in re.findall(r'springtide_stage_seconds_count\{.*stage="(\w+)".*\} ([0-9.e+-]+)', text):
                    spent = re.search(rf'springtide_stage_seconds_sum\{{.*stage="{stage}".*\}} ([0-9.e+-]+)', text)
                    before = totals.get(stage, (0, 0.0))
                    totals[stage] = (before[0] + int(float(count)), before[1] + float(spent[1] if spent else 0))
        return totals

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
    parser.add_argument("ways", nargs="*", choices=[*WAYS, *MORE_WAYS, []], metavar="WAY")
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
            before = {way.name: way.hooks() for way in ways}
            rounds(ways, options)
            encoded = {way.name: way.encoded() for way in ways}
            spent = {way.name: difference(way.hooks(), before[way.name]) for way in ways}
            stages = {way.name: way.stages() for way in ways}
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
    print(engine_time(spent, 2 * options.rounds * options.requests))
    print(store_time(stages))
    return 0


def difference(after: dict[str, Any], before: dict[str, Any]) -> dict[str, dict[str, tuple[int, float]]]:
    def less(side: str, hook: str) -> tuple[int, float]:
        calls, spent = before.get(side, {}).get(hook, (0, 0.0))
        return after[side][hook][0] - calls, after[side][hook][1] - spent

    return {side: {hook: less(side, hook) for hook in hooks} for side, hooks in after.items()}


def engine_time(spent: dict[str, Any], requests: int) -> str:
    """Each request has one item; a hook's time is shared out over all of them."""
    lines = [
        "\nTime of the engine's own threads a request, ms: `wait` is the encoder's until its items are readable",
        "\n| way | encoder, save | encoder, wait | encoder, scheduler | decoder, load | decoder, scheduler |",
        "|---|---|---|---|---|---|",
    ]
    for name, sides in spent.items():
        if not sides:
            continue

        def cell(side: str, hooks: tuple[str, ...] | None = None, sides: dict = sides) -> str:
            taken = sides.get(side, {})
            return f"{sum(taken[hook][1] for hook in hooks or taken if hook in taken) * 1e3 / requests:.2f}"

        producer, consumer = "ec_producer", "ec_consumer"
        cells = [cell(f"{producer}/worker", SAVING), cell(f"{producer}/worker", WAITING), cell(f"{producer}/scheduler")]
        cells += [cell(f"{consumer}/worker", LOADING), cell(f"{consumer}/scheduler")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def store_time(stages: dict[str, Any]) -> str:
    lines = ["\nStages of springtide's saves and loads, number and mean ms:\n"]
    for name, taken in stages.items():
        if taken:
            each = (f"{stage} {count} x {spent * 1e3 / count:.2f}" for stage, (count, spent) in taken.items() if count)
            lines.append(f"- {name}: " + ", ".join(each))
    return "\n".join(lines)


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
