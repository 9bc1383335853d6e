"""Processes of a run: started with a log of their own, waited for by a condition, stopped by their pid."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LOGS = TARGET / "e2e"
# How long anything may take before the run has failed: the machine may be busy with other things.
LIMIT_S = 900.0
STOP_LIMIT_S = 60.0


def wait_until(what: str, condition: Callable[[], Any], limit: float = LIMIT_S) -> Any:
    """Waits for a condition to become true; its value."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit:.0f} s: {what}")
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A program in a session of its own, so that its children end with it."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.name, self.log = name, LOGS / f"{name}.log"
        LOGS.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    def is_alive(self) -> bool:
        return self.popen.poll() is None

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.popen.pid, number)
        except ProcessLookupError:
            pass

    def stop(self) -> None:
        """Asks the program to end; what is left of its session after that is killed."""
        if self.is_alive():
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                print(f"    {self.name} did not end within {STOP_LIMIT_S:.0f} s of SIGTERM")
        self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.popen.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.text().splitlines()[-lines:])


class Server(Process):
    """A program that answers on a port."""

    def __init__(self, name: str, port: int, command: list[str], environment: dict[str, str] | None = None) -> None:
        super().__init__(name, command, environment)
        self.url = f"http://127.0.0.1:{port}"

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=10) as response:
                return response.status == 200
        except OSError:
            return False

    def wait_ready(self) -> "Server":
        def ready() -> bool:
            assert self.is_alive(), f"{self.name} ended at its start:\n{self.tail()}"
            return self.is_healthy()

        wait_until(f"{self.name} answers; its log is {self.log}", ready)
        return self

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as response:
            return response.read().decode()


class Vllm(Server):
    """An instance of vLLM on a CPU. `transfer` is its `--ec-transfer-config`, `cpu` what its model runs on."""

    def __init__(self, name: str, model: Path, cpu: str, transfer: dict | None = None, **more: Any) -> None:
        port = free_port()
        flags = [
            *("--model", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)),
            *("--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "8192", "--max-num-seqs", "4"),
            *("--max-num-batched-tokens", "8192", "--kv-cache-memory-bytes", str(128 << 20)),
            *("--limit-mm-per-prompt", '{"image": 4, "video": 0}', "--no-enable-prefix-caching"),
            *("--skip-mm-profiling", "--shutdown-timeout", "5"),
            *more.get("flags", ()),
        ]
        if transfer is not None:
            flags += ["--ec-transfer-config", json.dumps(transfer)]
        environment = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": cpu,
            # Its line for each encoded item is how a local encode is seen.
            "VLLM_LOGGING_LEVEL": "DEBUG",
            "PYTHONDONTWRITEBYTECODE": "",
            **more.get("environment", {}),
        }
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags]
        super().__init__(name, port, command, environment)

    def encoded(self) -> int:
        """Items that its encoder has run for."""
        return self.text().count("Finish execute for mm hash")

    def events(self) -> dict[str, int]:
        """The connector's counters by short names: `gets`, `hits`, `withdrawn`, `misses.absent`."""
        events: dict[str, int] = {}
        for line in re.finditer(r"^vllm:springtide_(\w+)_total\{(.*)\} ([0-9.e+]+)$", self.metrics(), re.M):
            name, labels, count = line[1], dict(re.findall(r'(\w+)="([^"]*)"', line[2])), int(float(line[3]))
            if name == "lookups":
                outcome = labels["outcome"]
                name = {"hit": "hits", "miss": f"misses.{labels['reason']}"}.get(outcome, outcome)
            events[name] = events.get(name, 0) + count
        return events


class Master:
    """A mooncake_master of `ci/real-store`."""

    def __init__(self, port: int) -> None:
        self.port, self.pid = port, 0
        self.address = f"127.0.0.1:{port}"

    def start(self) -> "Master":
        answer = subprocess.run(
            [ROOT / "ci/real-store", "start", f"--rpc_port={self.port}", "--default_kv_lease_ttl=5000"],
            check=True,
            capture_output=True,
            text=True,
        )
        self.pid = json.loads(answer.stdout)["pid"]
        return self

    def stop(self) -> None:
        if self.pid:
            subprocess.run([ROOT / "ci/real-store", "stop", str(self.pid)], check=True)
            self.pid = 0

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        wait_until("the master has gone", lambda: not runs(self.pid), 30)
        self.pid = 0


def runs(pid: int) -> bool:
    """Whether a process is there and not only waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
