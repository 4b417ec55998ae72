"""The benchmarks of Timeslice: `hack/bench`. Agents that do no work, the real orchestrator, gRPC over loopback TCP."""
