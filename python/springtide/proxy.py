"""A proxy for encoder, prefill and decode instances that speak OpenAI's chat API.

    python -m springtide.proxy --encoder http://e1:8000 --encoder http://e2:8000 --decoder http://d1:8000

Every media item of a request goes to an encoder, all at once, and the same item always to the same one, which
then has it in its cache. When all are encoded, the whole request goes to a prefill/decode instance, whose
connector finds the items in the store. An item that no encoder takes is no error: the decoder encodes it.
With prefill instances (`--prefill`), one of those gets the request first, for one token; their KV connector
brings what it made to the decoder, which needs nothing else to be right: it can prefill itself.

Responses are passed on as they come, so streams stay streams. A request is sent again only as long as
nothing of its response has been seen; encoding again costs a lookup.
"""

import argparse
import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, web

from springtide.quiet import Quiet

logger = logging.getLogger("springtide.proxy")
logger.addFilter(Quiet())

CHAT = "/v1/chat/completions"
# Kinds of content parts that carry media, in OpenAI's and vLLM's words.
MEDIA = {"image_url", "image_pil", "image_embeds", "video_url", "audio_url", "input_audio"}
# What of a request changes how its media are encoded.
ENCODED_WITH = ("model", "mm_processor_kwargs", "media_io_kwargs")
# Says to a KV connector that somebody else will decode; those that need no word ignore it.
DECODED_ELSEWHERE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
# Headers that belong to one connection.
HOP_BY_HOP = {"connection", "content-length", "content-encoding", "keep-alive", "transfer-encoding"}
BODY_MAX = 1 << 30
# What a server says when another one may do better.
TRY_ANOTHER = {502, 503, 504}


@dataclass
class Options:
    """Who is there, and how long to try."""

    encoders: list[str]
    decoders: list[str]
    prefills: list[str] = field(default_factory=list)
    # Times that a request is sent again, to another instance if there is one.
    retries: int = 2
    pause_s: float = 0.2
    # An item that is not encoded by then is left to the decoder.
    encode_timeout_s: float = 60.0
    connect_timeout_s: float = 5.0
    # Bounds the silence between two chunks of a response, not the response.
    read_timeout_s: float = 600.0


@dataclass
class Counts:
    """What has happened so far; `/metrics` shows it."""

    requests: int = 0
    items: int = 0
    encoded: int = 0
    encode_failures: int = 0
    prefill_failures: int = 0
    retries: int = 0
    decode_failures: int = 0
    aborted: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {"encode": 0.0})


class Proxy:
    """The handlers, over one client session."""

    def __init__(self, options: Options) -> None:
        self.options, self.counts = options, Counts()
        self._session: ClientSession | None = None
        self._turn = 0

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_MAX)
        app.router.add_post(CHAT, self.chat)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_route("*", "/v1/{path:.*}", self.pass_on)
        app.on_startup.append(self._open)
        app.on_cleanup.append(self._close)
        return app

    # -- handlers ------------------------------------------------------------------------------------

    async def chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"the body is no JSON: {error}") from None
        if not isinstance(body, dict):
            raise web.HTTPBadRequest(text="the body is no JSON object")
        self.counts.requests += 1
        items = media(body)
        started = time.perf_counter()
        # All at once; none of them raises.
        answers = await asyncio.gather(*(self._encode(body, item) for item in items))
        elapsed = time.perf_counter() - started
        self.counts.seconds["encode"] += elapsed
        transfer: dict[str, Any] = {}
        for answer in answers:
            transfer.update(answer)
        if transfer:
            body["ec_transfer_params"] = {**transfer, **(body.get("ec_transfer_params") or {})}
        if self.options.prefills:
            body.update(await self._prefill(body))
        headers = {"X-Encode-Milliseconds": f"{elapsed * 1e3:.1f}"} if items else {}
        return await self._decode(request, "POST", CHAT, headers, json=body)

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Everything else (models, completions of text) is the decoders' business."""
        data = await request.read()
        named = {"Content-Type": request.content_type} if data else {}
        return await self._decode(request, request.method, request.path_qs, {}, data=data, headers=named)

    async def health(self, request: web.Request) -> web.Response:
        """200 if a decoder answers: without encoders requests are still served."""
        instances = [*self.options.encoders, *self.options.prefills, *self.options.decoders]
        alive = await asyncio.gather(*(self._is_alive(url) for url in instances))
        told = dict(zip(instances, alive, strict=True))
        well = any(told[url] for url in self.options.decoders)
        return web.json_response(told, status=200 if well else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        counts = {name: value for name, value in vars(self.counts).items() if isinstance(value, int)}
        counts |= {f"{name}_seconds": value for name, value in self.counts.seconds.items()}
        lines = [f"springtide_proxy_{name} {value}\n" for name, value in counts.items()]
        return web.Response(text="".join(lines))

    # -- inside --------------------------------------------------------------------------------------

    async def _open(self, app: web.Application) -> None:
        options = self.options
        timeout = ClientTimeout(total=None, connect=options.connect_timeout_s, sock_read=options.read_timeout_s)
        # `limit=0`: no request waits for another's connection.
        self._session = ClientSession(connector=TCPConnector(limit=0), timeout=timeout)

    async def _close(self, app: web.Application) -> None:
        await self.session.close()

    @property
    def session(self) -> ClientSession:
        assert self._session is not None, "the application runs"
        return self._session

    async def _is_alive(self, url: str) -> bool:
        try:
            timeout = ClientTimeout(total=self.options.connect_timeout_s)
            async with self.session.get(f"{url}/health", timeout=timeout) as response:
                return response.status == 200
        except (ClientError, asyncio.TimeoutError):
            return False

    async def _encode(self, body: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
        """Has an item encoded; what the encoder says of it, nothing if none could."""
        self.counts.items += 1
        order = preference(self.options.encoders, item)
        question = {name: body[name] for name in ENCODED_WITH if name in body}
        question |= {"messages": [{"role": "user", "content": [item]}], "max_tokens": 1, "stream": False}

        async def ask() -> dict[str, Any] | None:
            async for url in self._attempts(order):
                answer = await self._ask(url, question)
                if answer is not None:
                    return answer
            return None

        try:
            answer = await asyncio.wait_for(ask(), self.options.encode_timeout_s)
        except asyncio.TimeoutError:
            logger.warning("an item was not encoded within %s s", self.options.encode_timeout_s)
            answer = None
        if not answer:
            self.counts.encode_failures += 1
            return {}
        self.counts.encoded += 1
        return answer.get("ec_transfer_params") or {}

    async def _ask(self, url: str, question: dict[str, Any]) -> dict[str, Any] | None:
        """An instance's answer; `None` if another one should be asked, nothing if none will do better."""
        try:
            async with self.session.post(url + CHAT, json=question) as response:
                if response.status == 200:
                    return await response.json()
                text = (await response.text())[:200]
                logger.warning("refused by %s, which answers %d: %s", url, response.status, text)
                # What is wrong with the item itself, the decoder will say.
                return None if response.status in TRY_ANOTHER else {}
        except (ClientError, asyncio.TimeoutError, ValueError) as error:
            logger.warning("no answer from %s: %r", url, error)
            return None

    async def _prefill(self, body: dict[str, Any]) -> dict[str, Any]:
        """Has the prompt prefilled; what the decoder should be told of it."""
        question = {**body, "max_tokens": 1, "stream": False, "kv_transfer_params": DECODED_ELSEWHERE}
        question.pop("max_completion_tokens", None)
        question.pop("stream_options", None)
        async for url in self._attempts(self._in_turn(self.options.prefills)):
            answer = await self._ask(url, question)
            if answer:
                told = answer.get("kv_transfer_params")
                return {"kv_transfer_params": told} if told else {}
            if answer is not None:
                break
        self.counts.prefill_failures += 1
        return {}

    def _in_turn(self, urls: list[str]) -> list[str]:
        self._turn += 1
        start = self._turn % len(urls)
        return urls[start:] + urls[:start]

    async def _attempts(self, urls: list[str]) -> AsyncIterator[str]:
        """The instances to try, one after the other, with a pause before each after the first."""
        if not urls:
            return
        for attempt in range(self.options.retries + 1):
            if attempt:
                self.counts.retries += 1
                await asyncio.sleep(self.options.pause_s * attempt)
            yield urls[attempt % len(urls)]

    async def _decode(
        self, request: web.Request, method: str, path: str, extra: dict[str, str], **content: Any
    ) -> web.StreamResponse:
        last = "no decoder"
        async for url in self._attempts(self._in_turn(self.options.decoders)):
            try:
                # Headers only: from here on the client sees what comes.
                response = await self.session.request(method, url + path, **content)
            except (ClientError, asyncio.TimeoutError) as error:
                last = f"{url}: {error!r}"
                logger.warning("no answer from the decoder %s", last)
                continue
            async with response:
                if response.status in TRY_ANOTHER:
                    last = f"{url} answers {response.status}"
                    continue
                return await self._relay(request, response, extra)
        self.counts.decode_failures += 1
        return web.json_response({"error": {"message": f"no decoder took the request ({last})", "code": 502}}, status=502)

    async def _relay(
        self, request: web.Request, response: ClientResponse, extra: dict[str, str]
    ) -> web.StreamResponse:
        """Passes a response on as it comes. One that breaks off breaks off at the client, too."""
        headers = {name: value for name, value in response.headers.items() if name.lower() not in HOP_BY_HOP}
        relayed = web.StreamResponse(status=response.status, headers={**headers, **extra})
        await relayed.prepare(request)
        try:
            async for chunk in response.content.iter_any():
                await relayed.write(chunk)
        except (ClientError, asyncio.TimeoutError) as error:
            self.counts.decode_failures += 1
            logger.warning("a response broke off: %r", error)
            if request.transport is not None:
                request.transport.close()
            return relayed
        except (ConnectionError, asyncio.CancelledError):
            # The client has gone: leaving closes the connection behind, and the engine aborts the request.
            self.counts.aborted += 1
            raise
        await relayed.write_eof()
        return relayed


def media(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The media items of a request, each once."""
    items = {}
    for message in body.get("messages") or []:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and (part.get("type") in MEDIA or MEDIA & part.keys()):
                items.setdefault(name_of(part), part)
    return list(items.values())


def name_of(item: dict[str, Any]) -> str:
    """The same for the same item: the client's own name for it, or all of it."""
    text = item.get("uuid") or json.dumps(item, sort_keys=True)
    return hashlib.blake2b(str(text).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def preference(urls: list[str], item: dict[str, Any]) -> list[str]:
    """All of `urls`, in an order that depends on the item: one that comes or goes moves only its own items."""
    name = name_of(item)
    return sorted(urls, key=lambda url: hashlib.blake2b(f"{url} {name}".encode()).digest())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m springtide.proxy", description=__doc__.split("\n\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--encoder", action="append", default=[], metavar="URL", help="an encoder; repeat for more")
    parser.add_argument("--decoder", action="append", required=True, metavar="URL", help="a prefill/decode instance")
    parser.add_argument("--prefill", action="append", default=[], metavar="URL", help="an instance that only prefills")
    parser.add_argument("--retries", type=int, default=Options.retries)
    parser.add_argument("--encode-timeout", type=float, default=Options.encode_timeout_s, metavar="SECONDS")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    named = (arguments.encoder, arguments.decoder, arguments.prefill)
    urls = [[url.rstrip("/") for url in some] for some in named]
    options = Options(*urls, retries=arguments.retries, encode_timeout_s=arguments.encode_timeout)
    web.run_app(Proxy(options).application(), host=arguments.host, port=arguments.port, print=None)


if __name__ == "__main__":
    main()
