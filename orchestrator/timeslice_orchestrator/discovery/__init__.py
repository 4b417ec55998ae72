"""Which groups there are: from a groups file, and from what nodes declare."""

from timeslice_orchestrator.discovery.discovery import Discovery

__all__ = ["Discovery"]
