"""TimesliceConfig: the opaque configuration of a claim or a DeviceClass, for the driver alone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from timeslice_api.kinds import names
from timeslice_api.kinds.decoding import Strict, checker, decoded


class TimesliceConfig(Strict):
    """Opaque parameters of driver gpu.timeslice.dev.

    Attributes:
        group: what the DeviceClass says is authoritative; in a claim it may only repeat it.
        job: the job of the claim's pods; wins over the label of the claim and that of the pod.
        backend: how the claim's processes are parked; absent: the node's own choice.
    """

    api_version: Literal["timeslice.dev/v1alpha1"]
    kind: Literal["TimesliceConfig"]
    group: Annotated[str, AfterValidator(checker(names.checked_group_name))] | None = None
    job: Annotated[str, AfterValidator(checker(names.checked_job_name))] | None = None
    backend: Literal["cuda"] | None = None


def decode_config(parameters: Any, where: str = "") -> TimesliceConfig:
    """The `opaque.parameters` of a claim's or class's configuration; `where` says whose, for the message.

    Raises:
        ConfigError: wrong kind or version, an unknown field, or a wrong value; names the field.
    """
    return decoded(TimesliceConfig, parameters, f"TimesliceConfig of {where}" if where else "TimesliceConfig")


def encode_config(config: TimesliceConfig) -> dict[str, Any]:
    """As a DeviceClass or claim carries it."""
    return config.model_dump(by_alias=True, exclude_none=True)
