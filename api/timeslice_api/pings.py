"""How servers of Timeslice keep quiet connections: options of gRPC servers.

https://github.com/grpc/grpc/blob/master/doc/keepalive.md
"""

from __future__ import annotations

from typing import Final

SERVER_PINGS: Final = (
    # A stopped or cut-off peer closes nothing: without pings of the server's own its calls would stay for ever.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients and nodes ping too, on connections that are quiet for long; the default answers that with GOAWAY.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)
