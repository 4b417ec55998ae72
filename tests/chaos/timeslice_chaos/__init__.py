"""Faults at named points and at random, real processes, and a checker that reads their logs afterwards."""
