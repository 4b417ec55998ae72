"""The orchestrator on Kubernetes: what it reads there, what it keeps there, and what it tells people there."""
