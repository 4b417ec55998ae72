"""The pure core: locks, leases and hand-offs as a synchronous state machine. No I/O, no clock, no asyncio.

`Core.step(event, now)` takes what happened (`events`) and returns what must be done (`effects`); the shells do it.
"""
