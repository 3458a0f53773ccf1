"""The sockets below the scripted provider: nothing is left open, whenever it closes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import warnings

import pytest
import uvloop

from service.demo.listener import Listener


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        writer.write(await reader.readexactly(1))
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("turns", range(8))
def test_one_that_is_closed_while_it_accepts_leaves_no_connection_open(turns: int, factory: object) -> None:
    """The loop turns so often between a client's coming and the close."""

    async def come_and_close() -> None:
        listener = Listener(echo, "127.0.0.1")
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await listener.close()
            client.settimeout(60)
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type]
            runner.run(come_and_close())
        gc.collect()
    assert [str(one.message) for one in caught] == []


async def test_a_closed_one_lets_nobody_in_and_its_port_can_be_had_again() -> None:
    first = Listener(echo, "127.0.0.1")
    with pytest.raises(OSError, match="in use"):
        Listener(echo, "127.0.0.1", first.port)
    await first.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", first.port)
    second = Listener(echo, "127.0.0.1", first.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", second.port)
    writer.write(b"x")
    assert await reader.read() == b"x"
    writer.close()
    await writer.wait_closed()
    await second.close()
