from __future__ import annotations
async def measure(effort, directory, wanted, profile): return []
