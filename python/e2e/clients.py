"""Requests with random images, and what of their responses the checks compare."""

import base64
import http.client
import io
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
from PIL import Image

SMALL, LARGE = 560, 1092
LIMIT_S = 600.0


def image(seed: int, size: int = SMALL) -> dict[str, Any]:
    """A content part with an image that no other seed has."""
    noise = numpy.random.default_rng(seed).integers(0, 255, (16, 16, 3), dtype=numpy.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).resize((size, size), Image.BICUBIC).save(content, "PNG", compress_level=1)
    url = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def chat(*parts: dict[str, Any], tokens: int = 4, **more: Any) -> dict[str, Any]:
    content = [*parts, {"type": "text", "text": "describe"}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": tokens}
    return {**body, "temperature": 0, "ignore_eos": True, "logprobs": True, "top_logprobs": 1, **more}


@dataclass
class Answer:
    status: int
    body: dict[str, Any]

    def logprobs(self) -> list[float]:
        """What tells a right answer of a random model from a wrong one: its text is noise."""
        return [round(token["logprob"], 3) for token in self.body["choices"][0]["logprobs"]["content"]]

    def keys(self) -> list[str]:
        """Where the store has the items of an encoder's response."""
        items = self.body["ec_transfer_params"]
        return [f"{item['springtide']}/{name}" for name, item in items.items()]


def ask(url: str, body: dict[str, Any]) -> Answer:
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
            return Answer(response.status, json.load(response))
    except urllib.error.HTTPError as error:
        return Answer(error.code, {"error": error.read().decode(errors="replace")})


def stream(url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a streamed response."""
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps({**body, "stream": True}).encode(), {"Content-Type": "application/json"}
    )
    events = []
    with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
        for line in response:
            text = line.decode().removeprefix("data: ").strip()
            if text and text != "[DONE]":
                events.append(json.loads(text))
    return events


def ask_and_leave(url: str, body: dict[str, Any], when: Callable[[], None] = lambda: None) -> None:
    """Sends a request and hangs up after `when`, without reading the response."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=LIMIT_S)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    when()
    connection.close()
