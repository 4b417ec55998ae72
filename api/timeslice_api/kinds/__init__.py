"""What Timeslice says to Kubernetes: its kinds and their decoders; names of labels, classes, attributes, capacities.

Only the daemons import it: the decoders need pydantic, which the bare client does not have.
"""

from timeslice_api.kinds.config import TimesliceConfig, decode_config, encode_config
from timeslice_api.kinds.group import (
    Condition,
    Device,
    GroupSpec,
    GroupStatus,
    LeaseTimes,
    TimesliceGroup,
    decode_group,
)
from timeslice_api.kinds.names import capacity_key, class_name, group_of_class
from timeslice_api.kinds.quantity import bytes_of

__all__ = [
    "Condition",
    "Device",
    "GroupSpec",
    "GroupStatus",
    "LeaseTimes",
    "TimesliceConfig",
    "TimesliceGroup",
    "bytes_of",
    "capacity_key",
    "class_name",
    "decode_config",
    "decode_group",
    "encode_config",
    "group_of_class",
]
