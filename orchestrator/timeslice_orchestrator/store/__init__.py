"""The orchestrator's state on disk: what must survive a restart, in one SQLite file."""

from timeslice_orchestrator.store.codec import NodeRecord, StoredRecord
from timeslice_orchestrator.store.sqlite import Store

__all__ = ["NodeRecord", "Store", "StoredRecord"]
