"""The gRPC face of the orchestrator: what jobs and people call, and the streams on which nodes dial in."""
