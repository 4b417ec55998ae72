"""Timeslice: independent RL jobs share GPUs by taking turns at phase boundaries."""
