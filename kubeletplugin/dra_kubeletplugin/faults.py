"""What may go wrong in the background of a plugin."""

from __future__ import annotations

from collections.abc import Sequence


class PublishError(Exception):
    """A pool could not be written now; it is being retried, with growing waits."""

    def __init__(self, pool: str, reason: str) -> None:
        super().__init__(f"pool {pool} is not published: {reason}")
        self.pool = pool


class InvalidPoolError(PublishError):
    """The API server finds a pool invalid. It is left until something else is published.

    `causes` holds (field, what is wrong with it).
    """

    def __init__(self, pool: str, reason: str, causes: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(pool, reason)
        self.causes = tuple(causes)


class DroppedFieldsError(PublishError):
    """The API server did not store some fields, for it does not know them or their feature gate is off.

    What it did store stays published. `fields` are their paths within the spec, without positions in lists
    (`devices.consumesCounters`).
    """

    def __init__(self, pool: str, fields: Sequence[str]) -> None:
        names = ", ".join(fields)
        super().__init__(pool, f"the API server has dropped {names}: a feature gate is off, or the server too old")
        self.fields = tuple(fields)


class RegistrationError(Exception):
    """kubelet could not use the plugin, and says why. It tries again by itself."""


class NotWorkingError(Exception):
    """The check of the plugin's own sockets failed."""
