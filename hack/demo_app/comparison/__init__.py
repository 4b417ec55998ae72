"""The demonstration: two GRPO jobs on one emulated GPU, each alone and then both together, measured and compared."""
