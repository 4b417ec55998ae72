"""The yardstick: an empty unary call to the orchestrator's own process.

The process serves it beside the orchestrator, from the same event loop, through a gRPC server of its own whose handler
returns an empty message. What it takes is the price of a round trip in Python's grpc on this machine at this moment.
"""

from __future__ import annotations

import time

import grpc

SERVICE = "timeslice.bench.Yardstick"
METHOD = f"/{SERVICE}/Empty"
CALL_LIMIT_S = 10.0


async def _nothing(_request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return b""


async def serve_empty_calls() -> tuple[grpc.aio.Server, int]:
    """A started server on a free loopback port, and that port."""
    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_nothing)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Empty": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def empty_call_times(target: str, count: int) -> list[float]:
    """How long each of `count` empty calls took, in milliseconds, after a warm-up."""
    async with grpc.aio.insecure_channel(target) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        times = []
        for _ in range(count + 20):
            start = time.perf_counter()
            await call(b"", timeout=CALL_LIMIT_S)
            times.append((time.perf_counter() - start) * 1000)
        return times[20:]
