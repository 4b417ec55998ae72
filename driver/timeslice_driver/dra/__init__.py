"""The kubelet plugin of the node: what of its GPUs the scheduler sees, and claims prepared for pods."""
