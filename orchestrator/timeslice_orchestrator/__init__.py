"""The orchestrator: a pure lock and hand-off core, and around it rpc, discovery and store."""
