"""The way to the Kubernetes API server: requests, watches, leader election."""
