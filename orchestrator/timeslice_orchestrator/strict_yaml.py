"""Reading a YAML file that people write: what is unknown, doubled or of another type is told with line and field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml
from timeslice_api.bounded_files import content_of
from timeslice_api.errors import ConfigError, InvalidRequest
from timeslice_api.names import checked_name
from yaml.composer import ComposerError

MAX_SIZE = 1 << 20  # bytes of a file
_MAX_DEPTH = 16


def text_of(path: Path, what: str) -> str:
    """A file's text. Raises ConfigError, which names `what` the file is."""
    try:
        return content_of(path, MAX_SIZE).decode()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {what} {path}: {error}") from error


class _Bounded(yaml.SafeLoader):
    """Without aliases: a few lines of them stand for more entries than a machine has memory for. And not deep: the time
    that PyYAML takes grows with the square of the depth."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self._refuse("an alias is not known here: write it out")
        if self._depth == _MAX_DEPTH:
            self._refuse("it is nested too deeply")
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _refuse(self, problem: str) -> NoReturn:
        place: Any = self
        raise ComposerError(None, None, problem, place.peek_event().start_mark)  # its types are not published


class StrictYaml:
    """One reading of a file. All of its methods raise ConfigError, with the line and the field that is wrong.

    Args:
        name: the file's, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def root(self, text: str, least: str) -> yaml.Node:
        """The whole of it; `least` is what a file needs at least."""
        try:
            root = yaml.compose(text, Loader=_Bounded)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise ConfigError(f"{self._name} line {line}: {error.problem or error.context}") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{self._name}: {error}") from error
        if root is None:
            raise ConfigError(f"{self._name} is empty", hint=f"it needs at least `{least}`")
        return root

    def fields(self, node: yaml.Node, field: str, known: tuple[str, ...]) -> Iterator[tuple[str, yaml.Node]]:
        """The entries of a mapping whose keys are `known`."""
        for key, value in self.pairs(node, field):
            if key.value not in known:
                raise self.error(key, under(field, key.value), f"is not known here; known: {', '.join(known)}")
            yield key.value, value

    def pairs(self, node: yaml.Node, field: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
        """The entries of a mapping, each key once."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, field or "the file", "must be a mapping")
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name = self.string(key, f"{field}: a key" if field else "a key")
            if name in lines:
                raise self.error(key, under(field, name), f"is there twice; first in line {lines[name]}")
            lines[name] = line_of(key)
        return list(node.value)

    def items(self, node: yaml.Node, field: str) -> Iterator[tuple[yaml.Node, str]]:
        """The entries of a list, each with its place."""
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, field, "must be a list")
        for index, item in enumerate(node.value):
            yield item, f"{field}[{index}]"

    def strings(self, node: yaml.Node, field: str) -> Iterator[tuple[str, yaml.Node, str]]:
        """The entries of a list of strings, each with its place."""
        for item, place in self.items(node, field):
            yield self.string(item, place), item, place

    def string(self, node: yaml.Node, field: str) -> str:
        """A string, which is not empty."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, field, "must be a string")
        if node.tag != "tag:yaml.org,2002:str":
            raise self.error(node, field, f"{node.value!r} must be a string: put it in quotes")
        if not node.value:
            raise self.error(node, field, "is empty")
        return str(node.value)

    def name(self, node: yaml.Node, field: str) -> str:
        """A string that can be the name of a job, group or node."""
        return self.checked(self.string(node, field), node, field)

    def names(self, node: yaml.Node, field: str) -> frozenset[str]:
        """A list of such names."""
        return frozenset(self.name(item, place) for item, place in self.items(node, field))

    def checked(self, value: str, node: yaml.Node, field: str) -> str:
        """The value, when it can be the name of a job, group or node."""
        try:
            return checked_name(value, field)
        except InvalidRequest as error:
            raise ConfigError(f"{self._name} line {line_of(node)}: {error.message}") from error

    def name_of(self, key: yaml.ScalarNode, field: str) -> str:
        """The key of an entry, when it is such a name."""
        return self.checked(key.value, key, under(field, key.value))

    def error(self, node: yaml.Node, field: str, problem: str) -> ConfigError:
        """The error that says what is wrong where."""
        return ConfigError(f"{self._name} line {line_of(node)}: {field} {problem}")


def line_of(node: yaml.Node) -> int:
    """The node's line, from 1."""
    return int(node.start_mark.line) + 1


def under(field: str, key: str) -> str:
    """The field of a mapping's entry."""
    return f"{field}.{key}" if field else key
