"""What was read from a file of our own, which somebody else may have written to: whether it is what it claims to be."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

Value = TypeVar("Value")


def json_of(data: str | bytes) -> Any:
    """The value in a JSON text, however deeply it is nested.

    Raises:
        ValueError: it is none. Python's own decoder ends in RecursionError for a few thousand brackets.
    """
    return from_json(data)


def well_typed(value: Value) -> Value:
    """The value, when each field of its dataclass, and of those in it, has the type that is declared for it.

    Raises:
        ValueError: one has not; the message names it.
    """
    try:
        _adapter(cast(Any, type(value))).validate_python((value,))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}") from error
    return value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # In a tuple, because only types that have no configuration of their own can be given one.
    config = ConfigDict(strict=True, revalidate_instances="always", allow_inf_nan=False)
    return TypeAdapter(cast(Any, tuple)[kind], config=config)
