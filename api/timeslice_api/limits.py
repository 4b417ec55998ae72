"""How much one side of a connection takes from the other: options of gRPC servers and channels, and open files."""

from __future__ import annotations

import resource
from typing import Final

MAX_REQUEST: Final = 4 << 20  # bytes of a message to a server: a node's hello with 10,000 parts has half of it
MAX_ANSWER: Final = 64 << 20  # bytes of a message from one: the state of all groups
# Bytes of a call's metadata; a token has up to 8 KiB. Soft and hard limit are one: between them gRPC refuses at random.
_METADATA: Final = 16 << 10

SERVER_LIMITS: Final = (
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_metadata_size", _METADATA),
    ("grpc.absolute_max_metadata_size", _METADATA),
    ("grpc.max_concurrent_streams", 20_000),  # of a connection; further ones wait at the client
    ("grpc.server_handshake_timeout_ms", 10_000),  # who connects and says nothing is let go; gRPC's own is 120 s
)
CHANNEL_LIMITS: Final = (
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.max_send_message_length", MAX_REQUEST),
    ("grpc.max_metadata_size", 4 * _METADATA),  # of an answer: the words of a refusal
    ("grpc.absolute_max_metadata_size", 4 * _METADATA),
)


def raise_open_files() -> int:
    """Lets this process have as many open files as it may, since each connection is one; returns how many.

    The usual soft limit of 1,024 is for programs that use select(2).
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
