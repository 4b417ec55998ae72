"""The benchmarks of Timeslice, run by hack/bench: agents that do no work, the real orchestrator, gRPC on loopback."""
