"""How a process finds its API server and proves who it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio import config as _config
from kubernetes.aio.client.configuration import Configuration

config: Any = _config  # the package says that it is typed, but these functions are not


class NoClusterError(Exception):
    """Nothing tells where an API server is, or what does cannot be read."""


async def configuration(kubeconfig: str | None = None) -> Any:
    """Where the API server is and the credentials for it, for `ApiClient`.

    From `kubeconfig` if given; else in a pod from its service account, whose token is read again every minute; else
    from the files of $KUBECONFIG or ~/.kube/config.

    Raises:
        NoClusterError: none of them is there, or it does not hold what is needed.
    """
    found: Any = Configuration()
    found.connection_pool_maxsize = 0  # no limit: each watch keeps a connection, and its number must not stop requests
    found.client_session_kwargs = {"trust_env": False}  # else each request reads all of the environment, and ~/.netrc
    try:
        await _load(found, kubeconfig)
    except (config.ConfigException, OSError) as error:
        raise NoClusterError(f"cannot reach a cluster: {error}") from error
    found.proxy = found.proxy or _proxy(urlsplit(found.host))
    return found


async def _load(found: Any, kubeconfig: str | None) -> None:
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config(found)
        return
    path = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    _demand(path)
    await config.load_kube_config(config_file=path, client_configuration=found, persist_config=False)


def _proxy(server: SplitResult) -> str | None:
    """As $HTTPS_PROXY, $HTTP_PROXY and $NO_PROXY tell; None for none."""
    return None if proxy_bypass(server.netloc) else getproxies().get(server.scheme)


def _demand(path: str) -> None:
    """The client itself fails with a riddle when no file is there."""
    if not any(os.path.isfile(Path(part).expanduser()) for part in path.split(os.pathsep) if part):
        raise FileNotFoundError(f"there is no kubeconfig {path} and this is no pod of a cluster")
