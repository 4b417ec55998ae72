"""The command `timeslice`."""
