"""The node component: the Snapshot Agent with its backends."""
