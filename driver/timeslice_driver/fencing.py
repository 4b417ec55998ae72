"""Which commands are too old to be obeyed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from timeslice_driver.faults import Fault


@dataclass(frozen=True)
class Watermark:
    """The newest leader that a node has heard, and the newest token of that leader.

    Attributes:
        epoch: of the leader.
        token: newest within that epoch.
        highest_token: newest of all epochs.
    """

    epoch: int = 0
    token: int = 0
    highest_token: int = 0

    def refuse(self, epoch: int, token: int) -> Fault | None:
        """Why a command is too old; None when it is not."""
        if epoch < self.epoch:
            message = f"the command is of epoch {epoch}, and epoch {self.epoch} has begun"
            return Fault("StaleEpoch", message, "another orchestrator leads now; only one may run for a node")
        if epoch == self.epoch and token < self.token:
            return Fault("StaleToken", f"the command's token is {token}, and {self.token} was seen")
        return None

    def raised(self, epoch: int, token: int) -> Watermark:
        """After a command that was not refused."""
        newest = max(token, self.token) if epoch == self.epoch else token
        return Watermark(max(epoch, self.epoch), newest, max(self.highest_token, token))

    def led_by(self, epoch: int) -> Watermark:
        """After a leader of that epoch has said Welcome."""
        return self if epoch <= self.epoch else Watermark(epoch, 0, self.highest_token)
