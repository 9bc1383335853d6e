"""The proxy between clients and instances that behave as each test needs."""

import asyncio
import json
import unittest
from typing import Any

from aiohttp import ClientSession, web

from springtide.proxy import CHAT, Options, Proxy, media, preference

FIRST = {"type": "image_url", "image_url": {"url": "data:1"}}
SECOND = {"type": "image_url", "image_url": {"url": "data:2"}, "uuid": "my own"}


def chat(*parts: dict, **more: Any) -> dict:
    content = [*parts, {"type": "text", "text": "what is it?"}]
    return {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 4, **more}


class Instance:
    """An encoder or a decoder: notes what it is asked, and answers with `answer`."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked, self.url = answer, [], ""

    async def start(self) -> "Instance":
        async def handle(request: web.Request) -> web.StreamResponse:
            self.asked.append(await request.json() if request.can_read_body else None)
            return await self.answer(request)

        async def health(request: web.Request) -> web.Response:
            return web.Response()

        app = web.Application()
        app.router.add_get("/health", health)
        app.router.add_route("*", "/v1/{path:.*}", handle)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        return self


async def encoded(request: web.Request) -> web.Response:
    body = await request.json()
    (item,) = body["messages"][0]["content"]
    return web.json_response({"ec_transfer_params": {item["image_url"]["url"]: {"springtide": "st1/x"}}})


async def decoded(request: web.Request) -> web.Response:
    return web.json_response({"choices": []})


async def overloaded(request: web.Request) -> web.Response:
    return web.Response(status=503)


async def hangs_up(request: web.Request) -> web.Response:
    request.transport.close()
    return web.Response()


async def streams(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(3):
        await response.write(f"data: {number}\n\n".encode())
    return response


async def breaks_off(request: web.Request) -> web.StreamResponse:
    response = await streams(request)
    request.transport.close()
    return response


class Proxies(unittest.IsolatedAsyncioTestCase):
    async def instance(self, answer: Any) -> Instance:
        instance = await Instance(answer).start()
        self.addAsyncCleanup(instance.runner.cleanup)
        return instance

    async def proxy(self, encoders: list[str], decoders: list[str], **options: Any) -> Proxy:
        proxy = Proxy(Options(encoders, decoders, pause_s=0.001, **options))
        runner = web.AppRunner(proxy.application(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.addAsyncCleanup(runner.cleanup)
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        return proxy

    async def ask(self, body: Any, path: str = CHAT) -> tuple[int, Any, dict]:
        async with ClientSession() as session, session.post(self.url + path, json=body) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text, response.headers

    async def test_each_item_is_encoded_before_the_whole_request_is_decoded(self) -> None:
        encoder, decoder = await self.instance(encoded), await self.instance(decoded)
        proxy = await self.proxy([encoder.url], [decoder.url])
        body = chat(FIRST, SECOND, FIRST, mm_processor_kwargs={"max_pixels": 9}, stream=False)
        status, _, headers = await self.ask(body)
        self.assertEqual(status, 200)
        self.assertIn("X-Encode-Milliseconds", headers)
        self.assertEqual(len(encoder.asked), 2, "a repeated item is encoded once")
        for question in encoder.asked:
            self.assertEqual(question["max_tokens"], 1)
            self.assertEqual(question["mm_processor_kwargs"], {"max_pixels": 9})
        self.assertEqual([q["messages"][0]["content"] for q in encoder.asked], [[FIRST], [SECOND]])
        self.assertEqual(set(decoder.asked[0].pop("ec_transfer_params")), {"data:1", "data:2"})
        self.assertEqual(decoder.asked, [body])
        self.assertEqual((proxy.counts.items, proxy.counts.encoded), (2, 2))

    async def test_text_goes_to_the_decoder_alone(self) -> None:
        encoder, decoder = await self.instance(encoded), await self.instance(decoded)
        await self.proxy([encoder.url], [decoder.url])
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
        self.assertEqual((await self.ask(body))[0], 200)
        self.assertEqual((await self.ask({"prompt": "hello"}, "/v1/completions"))[0], 200)
        self.assertEqual(encoder.asked, [])
        self.assertEqual(decoder.asked, [body, {"prompt": "hello"}])

    async def test_an_encoder_that_fails_is_replaced_and_none_is_needed(self) -> None:
        decoder = await self.instance(decoded)
        for broken in (overloaded, hangs_up):
            bad, good = await self.instance(broken), await self.instance(encoded)
            proxy = await self.proxy([bad.url, good.url], [decoder.url])
            # So many that each encoder is preferred by some.
            for number in range(64):
                item = {"type": "image_url", "image_url": {"url": f"data:{number}"}}
                self.assertEqual((await self.ask(chat(item)))[0], 200)
            self.assertEqual(len(good.asked), 64)
            self.assertEqual(proxy.counts.encode_failures, 0)
            self.assertGreater(len(bad.asked), 0, "some items prefer it")
        proxy = await self.proxy([bad.url], [decoder.url])
        self.assertEqual((await self.ask(chat(FIRST)))[0], 200)
        self.assertEqual(proxy.counts.encode_failures, 1)
        self.assertNotIn("ec_transfer_params", decoder.asked[-1])

    async def test_an_encoder_that_says_nothing_is_left_behind(self) -> None:
        async def silent(request: web.Request) -> web.Response:
            await asyncio.sleep(3600)
            return web.Response()

        encoder, decoder = await self.instance(silent), await self.instance(decoded)
        proxy = await self.proxy([encoder.url], [decoder.url], encode_timeout_s=0.05)
        self.assertEqual((await self.ask(chat(FIRST)))[0], 200)
        self.assertEqual(proxy.counts.encode_failures, 1)

    async def test_a_decoder_that_fails_is_replaced(self) -> None:
        for broken in (overloaded, hangs_up):
            bad, good = await self.instance(broken), await self.instance(decoded)
            await self.proxy([], [bad.url, good.url])
            for _ in range(4):
                self.assertEqual((await self.ask(chat()))[0], 200)
            self.assertEqual((len(good.asked), len(bad.asked)), (4, 2), "they take turns")
            await self.proxy([], [bad.url])
            status, answer, _ = await self.ask(chat())
            self.assertEqual(status, 502)
            self.assertIn("no decoder took the request", answer["error"]["message"])

    async def test_a_prompt_is_prefilled_first_where_that_is_wanted(self) -> None:
        async def prefilled(request: web.Request) -> web.Response:
            return web.json_response({"kv_transfer_params": {"block": 7}})

        prefill, decoder = await self.instance(prefilled), await self.instance(decoded)
        proxy = await self.proxy([], [decoder.url], prefills=[prefill.url])
        self.assertEqual((await self.ask(chat(stream=True, stream_options={"include_usage": True})))[0], 200)
        self.assertEqual((prefill.asked[0]["max_tokens"], prefill.asked[0]["stream"]), (1, False))
        self.assertNotIn("stream_options", prefill.asked[0])
        self.assertTrue(prefill.asked[0]["kv_transfer_params"]["do_remote_decode"])
        asked = decoder.asked[0]
        self.assertEqual((asked["max_tokens"], asked["stream"], asked["kv_transfer_params"]), (4, True, {"block": 7}))
        prefill.answer = overloaded
        self.assertEqual((await self.ask(chat()))[0], 200)
        self.assertEqual(proxy.counts.prefill_failures, 1)
        self.assertNotIn("kv_transfer_params", decoder.asked[1])

    async def test_streams_stay_streams_and_break_off_where_they_do(self) -> None:
        decoder = await self.instance(streams)
        await self.proxy([], [decoder.url])
        _, text, headers = await self.ask(chat(stream=True))
        self.assertEqual((text, headers["Content-Type"]), ("data: 0\n\ndata: 1\n\ndata: 2\n\n", "text/event-stream"))
        decoder.answer = breaks_off
        with self.assertRaises(Exception):
            await self.ask(chat(stream=True))

    async def test_what_is_no_request_is_refused(self) -> None:
        await self.proxy([], ["http://127.0.0.1:1"])
        async with ClientSession() as session:
            for data in (b"{", b"[]"):
                async with session.post(self.url + CHAT, data=data) as response:
                    self.assertEqual(response.status, 400)
                    self.assertIn("the body is no JSON", await response.text())

    async def test_health_is_the_decoders(self) -> None:
        encoder, decoder = await self.instance(encoded), await self.instance(decoded)
        for encoders, decoders, status in [
            ([encoder.url, "http://127.0.0.1:1"], [decoder.url], 200),
            ([encoder.url], ["http://127.0.0.1:1"], 503),
        ]:
            await self.proxy(encoders, decoders)
            async with ClientSession() as session, session.get(self.url + "/health") as response:
                self.assertEqual(response.status, status)
                self.assertEqual(len(await response.json()), len(encoders + decoders))

    def test_media_are_found_in_every_form(self) -> None:
        other = {"type": "input_audio", "input_audio": {"data": "x"}}
        found = media({"messages": [{"content": [FIRST, {"type": "text", "text": "a"}]}, {"content": [other]}]})
        self.assertEqual(found, [FIRST, other])
        for odd in ({}, {"messages": None}, {"messages": ["x", {"content": None}, {"content": ["x"]}]}):
            self.assertEqual(media(odd), [])

    def test_an_encoder_that_goes_moves_only_its_own_items(self) -> None:
        urls = [f"http://e{number}" for number in range(5)]
        items = [{"type": "image_url", "uuid": str(number)} for number in range(200)]
        before = [preference(urls, item)[0] for item in items]
        after = [preference(urls[1:], item)[0] for item in items]
        self.assertEqual(set(before), set(urls))
        moved = [b for b, a in zip(before, after, strict=True) if b != a]
        self.assertEqual(set(moved), {urls[0]})


if __name__ == "__main__":
    unittest.main()
