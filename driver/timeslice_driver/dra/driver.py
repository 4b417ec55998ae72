"""Timeslice as `dra_kubeletplugin` calls it: claim by claim, with the time taken, and people told of refusals."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic

from dra_kubeletplugin import Claim, ClaimRef, PreparedDevice, PrepareError
from timeslice_api.kinds import names as kinds

from timeslice_driver.dra.metrics import PluginMetrics
from timeslice_driver.dra.preparation import Preparation
from timeslice_driver.dra.refusals import RefusedError
from timeslice_driver.dra.reports import Reports

log = logging.getLogger(__name__)


class TimesliceDriver:
    """A `dra_kubeletplugin.Driver`.

    Args:
        preparation: does the work.
        reports: tells people.
        metrics: counts.
        ready: waits a while until claims can be prepared; why they still cannot, empty when they can.
        on_failure: told of what goes wrong in the background.
        changed: called when the prepared claims are others than before; it must not block.
    """

    def __init__(
        self,
        preparation: Preparation,
        reports: Reports,
        metrics: PluginMetrics,
        *,
        ready: Callable[[], Awaitable[str]],
        on_failure: Callable[[Exception], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._preparation = preparation
        self._reports = reports
        self._metrics = metrics
        self._ready = ready
        self._on_failure = on_failure
        self._changed = changed

    async def prepare(self, claims: Sequence[Claim]) -> Mapping[str, Sequence[PreparedDevice] | PrepareError]:
        """See `Driver.prepare`. The claims of one pod; each stands for itself."""
        if reason := await self._ready():
            raise PrepareError(reason)
        return {claim.ref.uid: await self._prepare(claim) for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareError | None]:
        """See `Driver.unprepare`. Needs neither the API server nor the NVIDIA driver."""
        return {claim.uid: await self._unprepare(claim) for claim in claims}

    async def failed(self, error: Exception) -> None:
        """See `Driver.failed`."""
        await self._on_failure(error)

    async def _prepare(self, claim: Claim) -> Sequence[PreparedDevice] | PrepareError:
        if not claim.results:
            return ()
        began = monotonic()
        try:
            prepared = await self._preparation.prepare(claim)
        except RefusedError as error:
            log.warning("claim %s is refused: %s: %s", claim.ref, error.reason.value, error, extra=_about(claim))
            self._metrics.refusals.labels(error.reason.value).inc()
            self._reports.refused(claim, error)
            return PrepareError(f"{error.reason.value}: {error}")
        self._metrics.prepare_seconds.observe(monotonic() - began)
        self._reports.prepared(claim)
        self._changed()
        return prepared

    async def _unprepare(self, claim: ClaimRef) -> PrepareError | None:
        began = monotonic()
        try:
            known = await self._preparation.unprepare(claim.uid)
        except RefusedError as error:
            log.error("claim %s cannot be unprepared: %s", claim, error, extra=claim.about)
            return PrepareError(f"{error.reason.value}: {error}")
        self._metrics.unprepare_seconds.observe(monotonic() - began)
        if not known:
            log.info("claim %s is unprepared; it was not known", claim, extra=claim.about)
        self._reports.forget(claim.uid)
        self._changed()
        return None


def _about(claim: Claim) -> dict[str, str]:
    """Fields of a line of the log about a claim that has no record, as far as its labels tell whose it is."""
    told = {"job_id": claim.labels.get(kinds.LABEL_JOB), "group_id": claim.labels.get(kinds.LABEL_GROUP)}
    return claim.ref.about | {field: value for field, value in told.items() if value}
