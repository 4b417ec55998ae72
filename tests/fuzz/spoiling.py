"""How fuzzed input is made: values of any kind, and good documents and messages in which something was spoilt."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

LONG = os.environ.get("TIMESLICE_CORE_PROFILE") == "core-long"  # ./hack/test --long
EXAMPLES = 5000 if LONG else 40
LIMIT = pytest.mark.timeout(900 if LONG else 60)  # of one test (seconds)
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None if LONG else 2000,  # milliseconds: nothing may take for ever
    derandomize=not LONG,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

NUMBERS = st.one_of(
    st.integers(), st.integers(-2, 2), st.sampled_from([2**63, 2**64, -(2**63), 10**400]), st.floats(), st.booleans()
)
TRICKS = st.sampled_from(
    ["", ".", "..", "../../etc/passwd", "/etc", "a\0b", "a\nb", "а", "ａ", "²", "٣", "%2e%2e", "~", "$(id)", "{{x}}"]
)
TEXTS = st.one_of(TRICKS, st.text(max_size=20), st.sampled_from(["x" * 300, "9" * 5000]))
ANYTHING = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
# What decoders that call themselves end at.
DEEP = st.sampled_from(["[" * 100_000, '{"a":' * 50_000, "[" * 500 + "]" * 500])


Found = TypeVar("Found")
Failure = TypeVar("Failure", bound=Exception)


def outcome(call: Callable[[], Found], *typed: type[Failure]) -> Found | Failure:
    """What a call returns, or the error that it is allowed to raise."""
    try:
        return call()
    except typed as error:
        return error


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from _places(inner, (*path, key))


@st.composite
def spoilt(draw: st.DrawFn, *documents: Any) -> Any:
    """One of the documents, in which up to three values are others, gone, or there under another name."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(list(_places(document))))
        if not path:
            if draw(st.integers(0, 9)) == 0:
                return draw(ANYTHING)
            continue
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        how = draw(st.sampled_from(["other", "gone", "named"]))
        value = holder[path[-1]] if how == "named" else draw(ANYTHING)
        if how != "other":
            del holder[path[-1]]
        if how == "other":
            holder[path[-1]] = value
        elif how == "named" and isinstance(holder, dict):
            holder[draw(TEXTS)] = value
    return document


@st.composite
def spoilt_bytes(draw: st.DrawFn, *originals: bytes) -> bytes:
    """One of the originals with a piece replaced or cut off, or any bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=200))
    original = draw(st.sampled_from(originals))
    start = draw(st.integers(0, len(original)))
    end = draw(st.integers(start, len(original)))
    return original[:start] + draw(st.binary(max_size=8)) + (original[end:] if draw(st.booleans()) else b"")


_WELL_FORMED = TEXTS.filter(lambda text: text.isascii() or text.encode(errors="ignore").decode() == text)


@st.composite
def messages(draw: st.DrawFn, kind: type[Message], depth: int = 3) -> Message:
    """A message in which any field may have any value that its type allows."""
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if draw(st.booleans()):
            continue
        values = [draw(_values(field, depth)) for _ in range(draw(st.integers(1, 2)) if field.is_repeated else 1)]
        if field.message_type is not None:
            for value in values:
                target = getattr(made, field.name)
                (target.add() if field.is_repeated else target).CopyFrom(value)
        elif field.is_repeated:
            getattr(made, field.name).extend(values)
        else:
            setattr(made, field.name, values[0])
    return made


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        inner = GetMessageClass(field.message_type)
        return messages(inner, depth - 1) if depth else st.just(inner())
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=20)
        case FieldDescriptor.CPPTYPE_STRING:
            return st.one_of(st.sampled_from(["g", "job-a", "n1", "d1"]), _WELL_FORMED)
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return st.floats(width=32)
        case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_ENUM:
            return st.one_of(st.integers(0, 6), st.integers(-(2**31), 2**31 - 1))
        case FieldDescriptor.CPPTYPE_INT64:
            return st.integers(-(2**63), 2**63 - 1)
        case FieldDescriptor.CPPTYPE_UINT32:
            return st.integers(0, 2**32 - 1)
        case _:
            return st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))
