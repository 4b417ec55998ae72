from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "hack"), str(Path(__file__).parent)]

from installation import Installation  # noqa: E402  found by the line above
from kube_cluster import Cluster  # noqa: E402
from kube_cluster.building import module_folder  # noqa: E402
from kube_cluster.modules import HELM, KUBERNETES  # noqa: E402
from sharing import Groups  # noqa: E402
from team import Team  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[Cluster]:
    """The test cluster: $TIMESLICE_E2E_CLUSTER, else `timeslice`. kubectl and helm on the PATH are its own."""
    found = Cluster(os.environ.get("TIMESLICE_E2E_CLUSTER", "timeslice"))
    if not found.is_up():
        pytest.exit(f"cluster {found.name} is not up: run ./hack/test e2e, or ./hack/cluster up --name {found.name}", 2)
    with pytest.MonkeyPatch.context() as patch:
        folders = os.pathsep.join(str(module_folder(module)) for module in (KUBERNETES, HELM))
        patch.setenv("PATH", folders + os.pathsep + os.environ["PATH"])
        patch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


@pytest.fixture(scope="session")
def _installation(cluster: Cluster) -> Installation:
    return Installation(cluster)


@pytest.fixture
def installed(_installation: Installation) -> Installation:
    """The chart as the working tree has it, with the images on the workers, ready. It stays when the test is over."""
    _installation.ensure()
    return _installation


@pytest.fixture
def groups(cluster: Cluster, installed: Installation) -> Iterator[Groups]:
    """Makes TimesliceGroups; they go after the test, when its team's claims have gone."""
    made = Groups(cluster)
    yield made
    made.remove()


@pytest.fixture
def team(cluster: Cluster, groups: Groups) -> Iterator[Team]:
    """A fresh namespace. Its pods and claims are gone after the test."""
    made = Team(cluster, f"e2e-{uuid4().hex[:6]}")
    made.create()
    yield made
    made.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the daemons said during the test: the cluster may be gone when somebody reads of it."""
    report = yield
    found = getattr(item, "funcargs", {}).get("installed")
    if report.failed and isinstance(found, Installation):
        report.sections.append(("the daemons, in that time", found.said(within_s=call.duration + 30)))
    return report
