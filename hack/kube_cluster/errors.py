"""What can go wrong, in words for the person at the terminal."""


class ClusterError(Exception):
    """The cluster, or the building of it, cannot go on; the message says why and what to do."""
