"""The tokens file, for orchestrators outside Kubernetes:

tokens:
- name: trainers              # for people and the audit log
  token_sha256: "5994471a..." # of the token, which `timeslice token` makes; so the file is no secret
  role: job                   # may acquire, yield and withdraw
  jobs: [job-a, job-b]        # optional: for which jobs; absent: any
  groups: [trainer-group]     # optional: in which groups; absent: any that admits the job
- {name: the first node, token_sha256: "...", role: node, node: node-1}
- {name: operators, token_sha256: "...", role: admin}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import yaml
from timeslice_api.errors import Unauthenticated

from timeslice_orchestrator.access.caller import Caller, Kind
from timeslice_orchestrator.strict_yaml import StrictYaml, line_of, text_of

_ROLES: Final = {"job": Kind.JOB, "node": Kind.NODE, "admin": Kind.ADMIN}
_FIELDS: Final = {"job": {"jobs", "groups"}, "node": {"node"}, "admin": frozenset[str]()}
_COMMON: Final = ("name", "token_sha256", "role")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def digest_of(token: str) -> str:
    """What the file has of a token, in place of it."""
    return sha256(token.encode()).hexdigest()


def parsed(text: str, name: str) -> Mapping[str, Caller]:
    """Callers by the digests of their tokens; `name` is the file's, for messages.

    Raises:
        ConfigError: with the line and the field that is wrong.
    """
    file = _File(name)
    return file.tokens(file.root(text, "tokens: []"))


class FileTokens:
    """The tokens of a file that is read now and again. An `Authenticator`.

    A token is looked up by its digest, so how long that takes tells nothing of the tokens that there are.

    Args:
        path: of the file.

    Raises:
        ConfigError: it cannot be read, or is wrong.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._callers: Mapping[str, Caller] = {}
        self.read()

    def read(self) -> None:
        """Takes the file over as it is now. Raises ConfigError; what was in force stays so then."""
        self._callers = parsed(text_of(self.path, "tokens file"), str(self.path))

    async def caller(self, token: str) -> Caller:
        """See `Authenticator`."""
        caller = self._callers.get(digest_of(token))
        if caller is None:
            raise Unauthenticated(
                "the orchestrator does not know this token",
                hint="its digest has to be in the orchestrator's tokens file; `timeslice token` makes both",
            )
        return caller


class _File(StrictYaml):
    """One reading of the file; remembers where each token and name was first."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._seen: dict[str, int] = {}

    def tokens(self, root: yaml.Node) -> dict[str, Caller]:
        top = dict(self.fields(root, "", ("tokens",)))
        if "tokens" not in top:
            raise self.error(root, "tokens", "is missing")
        return dict(self._entry(item, place) for item, place in self.items(top["tokens"], "tokens"))

    def _entry(self, node: yaml.Node, field: str) -> tuple[str, Caller]:
        fields = dict(self.fields(node, field, (*_COMMON, "jobs", "groups", "node")))
        for each in _COMMON:
            if each not in fields:
                raise self.error(node, f"{field}.{each}", "is missing")
        role = self._role(fields["role"], f"{field}.role")
        for each in fields:
            if each not in _COMMON and each not in _FIELDS[role]:
                raise self.error(fields[each], f"{field}.{each}", f"is not for role {role}")
        if role == "node" and "node" not in fields:
            raise self.error(node, f"{field}.node", "is missing")
        name = self._once(self.string(fields["name"], f"{field}.name"), fields["name"], f"{field}.name")
        return self._digest(fields["token_sha256"], f"{field}.token_sha256"), Caller(
            _ROLES[role],
            f"token {name!r}",
            jobs=self.names(fields["jobs"], f"{field}.jobs") if "jobs" in fields else None,
            groups=self.names(fields["groups"], f"{field}.groups") if "groups" in fields else None,
            node=self.name(fields["node"], f"{field}.node") if "node" in fields else "",
        )

    def _role(self, node: yaml.Node, field: str) -> str:
        role = self.string(node, field)
        if role not in _ROLES:
            raise self.error(node, field, f"is {role!r}; it may be {', '.join(_ROLES)}")
        return role

    def _digest(self, node: yaml.Node, field: str) -> str:
        digest = self.string(node, field).lower()
        if not _SHA256.fullmatch(digest):
            raise self.error(node, field, "is no SHA-256 of 64 hexadecimal digits")
        return self._once(digest, node, field)

    def _once(self, value: str, node: yaml.Node, field: str) -> str:
        if value in self._seen:
            raise self.error(node, field, f"is there twice; first in line {self._seen[value]}")
        self._seen[value] = line_of(node)
        return value
