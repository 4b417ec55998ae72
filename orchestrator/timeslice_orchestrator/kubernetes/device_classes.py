"""The DeviceClass of a group: what a user's claim template names."""

from __future__ import annotations

from enum import Enum

from dra_kubeletplugin.apiserver import Object
from timeslice_api.kinds.group import TimesliceGroup
from timeslice_api.kinds.names import (
    API_VERSION,
    ATTRIBUTE_GROUP,
    ATTRIBUTE_MODE,
    DRIVER,
    KIND_CONFIG,
    KIND_GROUP,
    LABEL_GROUP,
    MODE_SLOTS,
    class_name,
)

from timeslice_orchestrator.kubernetes.raw import at, items

_MANAGED_BY = "app.kubernetes.io/managed-by"
_US = "timeslice-orchestrator"


class Step(Enum):
    """What a DeviceClass needs."""

    NOTHING = "nothing"
    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"
    REPORT = "report"  # somebody else made a class of that name


def wanted(group: TimesliceGroup) -> Object:
    """The class as it has to be. Its selector asks the driver first: another driver's devices lack our attributes, and
    CEL that fails on one device blocks the pod."""
    attributes = f"device.attributes['{DRIVER}']"
    ours = f"{attributes}.{ATTRIBUTE_GROUP} == '{group.name}' || {attributes}.{ATTRIBUTE_MODE} == '{MODE_SLOTS}'"
    config = {"apiVersion": API_VERSION, "kind": KIND_CONFIG, "group": group.name}
    owner = {"apiVersion": API_VERSION, "kind": KIND_GROUP, "name": group.name, "uid": group.metadata.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {
            "name": class_name(group.name),
            "labels": {_MANAGED_BY: _US, LABEL_GROUP: group.name},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}' && ({ours})"}}],
            "config": [{"opaque": {"driver": DRIVER, "parameters": config}}],
        },
    }


def is_ours(found: Object) -> bool:
    """Whether we made this class."""
    return at(found, "metadata", "labels").get(_MANAGED_BY) == _US


def step(group: TimesliceGroup, found: Object | None) -> Step:
    """What to do about the class of that name, as the API server has it."""
    if found is not None and not is_ours(found):
        return Step.NOTHING if group.deleted else Step.REPORT
    if group.deleted:
        return Step.NOTHING if found is None or "deletionTimestamp" in found["metadata"] else Step.DELETE
    if found is None:
        return Step.CREATE
    return Step.NOTHING if _same(wanted(group), found) else Step.REPLACE


def healed(group: TimesliceGroup, found: Object) -> Object:
    """The class that is there, made what it has to be; labels that others put on it stay."""
    target, metadata = wanted(group), found["metadata"]
    labels = {**at(metadata, "labels"), **target["metadata"]["labels"]}
    return {
        **target,
        "metadata": {**metadata, "labels": labels, "ownerReferences": target["metadata"]["ownerReferences"]},
    }


def _same(target: Object, found: Object) -> bool:
    owners = [owner.get("uid") for owner in items(found, "metadata", "ownerReferences")]
    mine = [owner["uid"] for owner in target["metadata"]["ownerReferences"]]
    label = at(found, "metadata", "labels").get(LABEL_GROUP)
    return bool(
        owners == mine and target["spec"] == found["spec"] and label == target["metadata"]["labels"][LABEL_GROUP]
    )
