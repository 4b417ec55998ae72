"""The same on a real cluster: faults of Kubernetes, and of orchestrators, nodes and jobs in its pods."""

from __future__ import annotations

from timeslice_chaos.arena import Arena
from timeslice_chaos.cluster.deck import faults
from timeslice_chaos.cluster.strike import ClusterStriker
from timeslice_chaos.cluster.world import living

CLUSTER = Arena(
    living=lambda folder, _seed: living(folder),
    faults=faults,
    striker=ClusterStriker,
    served_s=300.0,  # a kubelet repeats a prepare that failed, as after a power cut, only after 60 to 90 s
    fixed=((1,), 180.0),
    long_s=900.0,
)
