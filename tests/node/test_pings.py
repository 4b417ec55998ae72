"""Quiet connections to the node: clients keep them by pings, at whatever pace they like."""

from __future__ import annotations

import asyncio

import pytest
from node_world import World

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

# Frames of HTTP/2 (RFC 9113): 3 bytes of length, type, flags, stream, payload.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = bytes(3) + b"\x04" + bytes(5)
_PING = b"\x00\x00\x08\x06" + bytes(5) + b"timeslic"
_PING_TYPE, _GOAWAY_TYPE = 6, 7


async def test_a_client_that_pings_on_a_quiet_connection_is_not_sent_away(world: World) -> None:
    await world.start()
    reader, writer = await asyncio.open_unix_connection(str(world.folder / "node.sock"))
    writer.write(_PREFACE + _SETTINGS)
    async with asyncio.timeout(5):
        for _ in range(10):
            writer.write(_PING)
            while (kind := await _kind_of_next_frame(reader)) != _PING_TYPE:
                assert kind != _GOAWAY_TYPE
    writer.close()
    await writer.wait_closed()


async def _kind_of_next_frame(reader: asyncio.StreamReader) -> int:
    header = await reader.readexactly(9)
    await reader.readexactly(int.from_bytes(header[:3]))
    return header[3]
