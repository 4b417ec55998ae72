"""What must survive a restart: the protocol of a store, and the store that is one SQLite file."""

from timeslice_orchestrator.store.codec import NodeRecord, StoredRecord
from timeslice_orchestrator.store.protocol import Store
from timeslice_orchestrator.store.sqlite import SqliteStore

__all__ = ["NodeRecord", "SqliteStore", "Store", "StoredRecord"]
