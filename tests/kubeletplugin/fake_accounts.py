"""Service accounts of the fake API server: it issues tokens, says whose they are, and what their owners may.

As the real one does: a token is bound to a pod and ends with it, has audiences, and ends by itself.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from api_objects import Object, Objects, Place, Refusal

REVIEWS = frozenset({"tokenreviews", "subjectaccessreviews"})
_PREFIX = "authentication.kubernetes.io"


def account_name(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


class Accounts:
    """`rights` has (user, verb, name of a TimesliceGroup); `issued` every token by its text."""

    def __init__(self, store: Objects) -> None:
        self._store = store
        self.rights: set[tuple[str, str, str]] = set()
        self.issued: dict[str, Object] = {}

    def issue(
        self,
        namespace: str,
        account: str,
        *,
        pod: Object | None = None,
        audiences: Sequence[str] = ("timeslice",),
        lasts_s: float = 3600.0,
    ) -> str:
        """A token; it looks like a JWT, and nobody can make one that is as good."""
        claims: Object = {"aud": list(audiences), "exp": int(time.time() + lasts_s), "iat": int(time.time())}
        text = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        token = f"e30.{text}.{uuid.uuid4().hex}"
        self.issued[token] = claims | {"user": account_name(namespace, account), "pod": pod}
        return token

    def answer(self, place: Place, body: Object) -> Object:
        """What the server says to a review or a request for a token."""
        match place.plural:
            case "tokenreviews":
                return body | {"status": self._review(body["spec"])}
            case "subjectaccessreviews":
                spec = body["spec"]
                wanted = (spec["user"], spec["resourceAttributes"]["verb"], spec["resourceAttributes"]["name"])
                return body | {"status": {"allowed": wanted in self.rights}}
        return body | {"status": self._request(place, body["spec"])}

    def _review(self, spec: Object) -> Object:
        found = self.issued.get(spec["token"])
        if found is None or found["exp"] <= time.time() or not self._alive(found["pod"]):
            return {"error": "the token is not good"}
        audiences = [each for each in spec["audiences"] if each in found["aud"]]
        if not audiences:
            return {"error": "token audiences do not match"}
        pod = found["pod"]
        extra = _extra(pod) if pod else {}
        user = {"username": found["user"], "groups": ["system:serviceaccounts"], "extra": extra}
        return {"authenticated": True, "user": user, "audiences": audiences}

    def _alive(self, pod: Object | None) -> bool:
        if pod is None:
            return True
        metadata = pod["metadata"]
        stored = self._store.stored.get(Place("", "pods", metadata["namespace"], metadata["name"]))
        return stored is not None and stored["metadata"]["uid"] == metadata["uid"]

    def _request(self, place: Place, spec: Object) -> Object:
        bound = spec["boundObjectRef"]
        pod: Any = self._store.stored.get(Place("", "pods", place.namespace, bound["name"]))
        if pod is None:
            raise Refusal(404, "NotFound", f'pods "{bound["name"]}" not found')
        if pod["metadata"]["uid"] != bound["uid"]:
            raise Refusal(409, "Conflict", "the UID in the bound object reference does not match the UID in record")
        if pod["spec"].get("serviceAccountName", "default") != place.name:
            raise Refusal(400, "BadRequest", "cannot bind token to a pod of another service account")
        lasts_s = float(spec["expirationSeconds"])
        token = self.issue(place.namespace, place.name, pod=pod, audiences=spec["audiences"], lasts_s=lasts_s)
        ends = datetime.fromtimestamp(self.issued[token]["exp"], UTC)
        return {"token": token, "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _extra(pod: Object) -> dict[str, list[str]]:
    said = {"pod-name": pod["metadata"]["name"], "pod-uid": pod["metadata"]["uid"]}
    said["node-name"] = pod["spec"].get("nodeName", "")
    return {f"{_PREFIX}/{key}": [value] for key, value in said.items() if value}
