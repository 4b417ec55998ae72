"""From an object of the API server to a model: one error that names the field and the mend."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from timeslice_api.errors import ConfigError


def camel(name: str) -> str:
    """The field's name in JSON."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


class Strict(BaseModel):
    """A part of an object that people write: fields of the right types, and none that is unknown."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=camel, populate_by_name=True)


class Lenient(BaseModel):
    """A part of an object that a program writes, perhaps a newer one than this: unknown fields are passed over."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, alias_generator=camel, populate_by_name=True)


Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")


def checker(check: Callable[[Value, str], Value]) -> Callable[[Value], Value]:
    """A check that raises ConfigError, as one for a model's field: pydantic gathers only ValueErrors, and knows the
    field better."""

    def checked(value: Value) -> Value:
        try:
            return check(value, "")
        except ConfigError as error:
            raise ValueError(error) from error

    return checked


def decoded(model: type[Model], raw: object, what: str) -> Model:
    """The raw object as the model; `what` is its kind and name, for messages.

    Raises:
        ConfigError: names the first field that is wrong, by its path, and the number of further ones.
    """
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{what} is {type(raw).__name__}, not an object")
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        more = f"; {len(problems) - 1} more" if len(problems) > 1 else ""
        first = problems[0]
        message = f"{what}: {_path(first['loc'])} {_fault(first)}{more}"
        raise ConfigError(message, hint=_mend(first, model)) from error


def _path(location: tuple[int | str, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).removeprefix(".")


def _fault(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return "is not a field of it"
    if problem["type"] == "missing":
        return "is missing"
    if (cause := _cause(problem)) is not None:
        return cause.message.strip()
    return f"is {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _cause(problem: ErrorDetails) -> ConfigError | None:
    """Our own check's error, where that is what failed."""
    error = problem.get("ctx", {}).get("error")
    return error.__cause__ if isinstance(error, ValueError) and isinstance(error.__cause__, ConfigError) else None


def _mend(problem: ErrorDetails, model: type[BaseModel]) -> str:
    if (cause := _cause(problem)) is not None:
        return cause.hint
    if problem["type"] != "extra_forbidden":
        return ""
    *parents, name = problem["loc"]
    known = sorted(_fields(model, parents))
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"


def _fields(model: type[BaseModel], path: list[int | str]) -> Iterator[str]:
    """The fields, as JSON has them, of the part of the model where the path leads."""
    for step in path:
        inner = next((field.annotation for field in model.model_fields.values() if field.alias == step), None)
        found = _model_in(inner)
        if found is None:
            return
        model = found
    yield from (field.alias or name for name, field in model.model_fields.items())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in getattr(annotation, "__args__", ()) if (found := _model_in(inner))), None)
