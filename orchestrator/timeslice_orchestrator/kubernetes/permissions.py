"""What decisions need to know of a cluster: whose claims a pod has, whom a group admits, what RBAC allows."""

from __future__ import annotations

import asyncio
from typing import Final

from dra_kubeletplugin.apiserver import ApiServer, ApiServerError, Resource
from timeslice_api.errors import Unavailable
from timeslice_api.kinds.names import API_GROUP, PLURAL_GROUP

from timeslice_orchestrator.access.caller import Act, Caller
from timeslice_orchestrator.access.rules import verb_of
from timeslice_orchestrator.kubernetes.cluster import Cluster
from timeslice_orchestrator.kubernetes.raw import at

ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
_NEWS_S = 2.0  # claims are allocated before their pods start, so what is not seen yet is on its way


class Permissions:
    """The `World` and `Judge` of a cluster.

    Args:
        api: asked for admin acts, each time: they are few, and a right that was taken away counts at once.
        cluster: the claims and groups as they are watched.
        node_account: see `World`.
    """

    def __init__(self, api: ApiServer, cluster: Cluster, node_account: str) -> None:
        self._api = api
        self._cluster = cluster
        self.node_account = node_account

    def jobs_of(self, caller: Caller) -> frozenset[str]:
        """See `World`. Only claims with devices count: those have been admitted. A pod without any, such as one that
        drives a job from a machine without GPUs, is of the job of its label, if that has devices in its namespace."""
        occupancy = self._cluster.occupancy
        claims = [claim for claim in occupancy.claims_of_pod(caller.pod_uid) if claim.uses]
        mine = (occupancy.jobs_of(claim) for claim in claims if claim.namespace == caller.namespace)
        return frozenset[str]().union(*mine) or self._labelled(caller)

    def _labelled(self, caller: Caller) -> frozenset[str]:
        occupancy = self._cluster.occupancy
        pod = occupancy.pods.get(caller.pod_uid)
        has = pod is not None and pod.label_job and occupancy.has_devices(pod.label_job, caller.namespace)
        return frozenset({pod.label_job}) if pod and has else frozenset()

    def admits(self, group_id: str, namespace: str) -> bool:
        """See `World`."""
        group = self._cluster.groups.good.get(group_id)
        return group is None or group.spec.admits_namespace(namespace)

    def stranger(self, job_id: str, group_id: str, namespace: str) -> str:
        """See `World`. Labels are their writers' own word, so of two namespaces that use one name the first has it."""
        claims = self._cluster.occupancy.claims_of_job(job_id, group_id)
        if all(claim.namespace == namespace for claim in claims):
            return ""
        first = min(claims, key=lambda claim: (claim.created, claim.uid))
        return first.namespace if first.namespace != namespace else ""

    async def know(self, caller: Caller) -> None:
        """See `Judge`."""
        if self.jobs_of(caller):
            return
        if not self._cluster.knows_pods:
            raise Unavailable("pods and claims are not known yet: this orchestrator has just begun to lead")
        try:
            async with asyncio.timeout(_NEWS_S):
                while not self.jobs_of(caller):
                    await self._cluster.changed()
        except TimeoutError:
            pass

    async def allows(self, caller: Caller, act: Act, group_id: str) -> bool:
        """See `Judge`. A SubjectAccessReview of the act's verb on the TimesliceGroup."""
        attributes = {"group": API_GROUP, "resource": PLURAL_GROUP, "name": group_id, "verb": verb_of(act)}
        spec = {
            "user": caller.user,
            "groups": list(caller.roles),
            "extra": {key: list(values) for key, values in caller.extra},
            "resourceAttributes": attributes,
        }
        body = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
        try:
            answer = await self._api.create(ACCESS_REVIEWS, body)
        except ApiServerError as error:
            raise Unavailable(f"nobody can tell now what {caller.name} may: {error}") from error
        return bool(at(answer, "status").get("allowed"))
