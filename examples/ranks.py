"""Many ranks of one job, as torchrun or srun start them: all hold together, and the slowest ends the phase for all.

export TIMESLICE_RANKS_ADDRESS=$HOME/job-a.ranks   # over several nodes host:port of rank 0, and TIMESLICE_RANKS_KEY
timeslice run --job job-a --group trainer-group -- torchrun --nproc-per-node 2 examples/ranks.py
"""

import time

from timeslice import OrchestratorClient, RankedClient

orchestrator = RankedClient(OrchestratorClient())


@orchestrator.on_accelerators(group_id="trainer-group")
def train(step: int) -> None:
    time.sleep(0.05 * (orchestrator.rank + 1))  # would train, and end with torch.cuda.synchronize()
    print(f"rank {orchestrator.rank} of {orchestrator.world_size}: step {step}", flush=True)


for step in range(3):
    train(step)
