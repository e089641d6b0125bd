# SPDX-License-Identifier: Apache-2.0
# A client that is not ours: python3-websockets against the echo server at argv[1].
# Prints "ok" when everything came back as it should.
import asyncio
import sys

import websockets


async def main(url):
    async with websockets.connect(url, max_size=None, compression="deflate") as ws:
        # The server knows no extension, so none may be in use.
        extensions = getattr(ws, "protocol", ws).extensions
        assert extensions == [], extensions
        for message in ["", "hello", "h\u00e9llo \u4e2d \U0001f600", b"", b"\x00\xff",
                        "x" * 125, "x" * 126, "x" * 65535, "x" * 65536, b"y" * 1000000]:
            await ws.send(message)
            assert await ws.recv() == message
        await ws.send(["frag", "men", "", "ted"])
        assert await ws.recv() == "fragmented"
        await ws.send([b"a"] * 1000)
        assert await ws.recv() == b"a" * 1000
        for _ in range(10):
            await asyncio.wait_for(await ws.ping(), 5)
        await ws.send("ping me")
        await ws.send("two")
        assert [await ws.recv(), await ws.recv()] == ["1", b"2"]
        await ws.close(3001, "done")
        assert (ws.close_code, ws.close_reason) == (3001, ""), (ws.close_code, ws.close_reason)
    async with websockets.connect(url) as ws:
        await ws.send("close")
        try:
            await ws.recv()
            assert False, "not closed"
        except websockets.ConnectionClosed as closed:
            assert (closed.rcvd.code, closed.rcvd.reason) == (4000, "as you wish"), closed
    async with websockets.connect(url.replace("/ws", "/protocols"),
                                  subprotocols=["a", "b", "c"]) as ws:
        assert ws.subprotocol == "b", ws.subprotocol
    try:
        await websockets.connect(url.replace("/ws", "/refuse"))
        assert False, "not refused"
    except websockets.InvalidHandshake as refused:
        # Older releases have the number in the exception itself.
        status = getattr(refused, "response", refused).status_code
        assert status == 403, refused
    print("ok")


asyncio.run(asyncio.wait_for(main(sys.argv[1]), 30))
