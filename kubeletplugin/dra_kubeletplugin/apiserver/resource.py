"""Kinds of objects of the Kubernetes API, by the part of the URL that serves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

Object: TypeAlias = dict[str, Any]
"""An object of the API server as JSON has it. Raw, since a typed model drops the fields that it does not know."""

Objects: TypeAlias = list[Object]


@dataclass(frozen=True)
class Resource:
    """A resource of the API. The group of the core API is ""."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As `apiVersion` of an object has it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path of the URL. Without a namespace that of all namespaces.

        Raises:
            ValueError: a namespace for a cluster's resource; a name without namespace for any other.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self} has no namespaces")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self} {name!r} needs its namespace")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes", namespaced=False)
EVENTS = Resource("events.k8s.io", "v1", "events")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims")
CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates")
SLICES = Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
