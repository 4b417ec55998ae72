"""The report as one JSON-ready dictionary. Every figure comes with what it was measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo.tasks import TASKS
from grpo.trainer import Recipe

from comparison.claims import Claim, Outcome
from comparison.closed_form import Phases, Policy, cycle_s, duty_cycle
from comparison.measures import Handoff, JobRecord, RunRecord, spread
from comparison.plan import JobSpec

_POLICIES: tuple[Policy, ...] = ("overlapped", "lazy", "blocking", "prefetched")
_MEASURED_AS = (
    "Wall times run from the moment in which the loaded programs are let go together to the end of the last one's "
    "training; starting Python and its imports is not in them, taking the device memory and the final hash are. A hold "
    "is from grant to yield, by the job's own clock. The duty cycle is the sum of holds over wall time. Runs alone "
    "use the same platform and the same calls; nothing is parked in them. Snapshot is lock and checkpoint, restore is "
    "restore and unlock, as the node measured them."
)
_LIMITS = (
    "An emulated GPU: numpy on the job's one CPU core plays the kernels, and parking copies between two places in host "
    "memory at the given bandwidth. On a real GPU phases and swaps are longer, their ratio is what carries over. With "
    "fewer cores than jobs plus one, the jobs also slow each other down on the CPU."
)


@dataclass(frozen=True)
class Setting:
    """What was run, on what."""

    jobs: tuple[JobSpec, ...]
    steps: int
    gpu_memory: int
    bandwidth: int


@dataclass(frozen=True)
class Counted:
    """What the orchestrator counted while both jobs ran."""

    handoffs: tuple[Handoff, ...]
    handoff_count: int
    bytes_parked: int
    bytes_restored: int
    grants: int
    duty_cycle: float


NEAR = 0.1  # how near, in parts of the closed form, a measured duty cycle is to be


def report(
    outcome: Outcome, counted: Counted, setting: Setting, *, claims: list[Claim], whole_s: float
) -> dict[str, Any]:
    """The report. `whole_s` is the wall time of the whole demonstration."""
    snapshots = spread([h.lock_s + h.checkpoint_s for h in counted.handoffs if h.bytes_parked])
    restores = spread([h.restore_s + h.unlock_s for h in counted.handoffs if h.bytes_restored])
    together = outcome.together
    by_key = {claim.key: claim.holds for claim in claims}
    sharing = [job.phases(snapshots.mean, restores.mean) for job in together.jobs.values()]
    predicted = duty_cycle(sharing)
    dedicated = [run.jobs[name].phases(snapshots.mean, restores.mean) for name, run in outcome.alone.items()]
    return {
        "ok": all(by_key.values()),
        "claims": [asdict(claim) for claim in claims],
        "wall_s": whole_s,
        "alone": {
            "wall_s": outcome.alone_s,
            "duty_cycle": sum(run.held_s for run in outcome.alone.values()) / outcome.alone_s,
            "jobs": {name: _job(run.jobs[name], run) for name, run in outcome.alone.items()},
        },
        "together": {
            "wall_s": together.wall_s,
            "duty_cycle": together.duty_cycle,
            "jobs": {name: _job(job, together) for name, job in together.jobs.items()},
        },
        "closed_form_duty_cycle": predicted,
        "duty_cycle_of_closed_form": together.duty_cycle / predicted,
        "duty_cycle_near_closed_form": abs(together.duty_cycle / predicted - 1) <= NEAR,
        "closed_form": _closed_form(sharing, dedicated),
        "stretch": {name: _wall_s(together.jobs[name], together) / run.wall_s for name, run in outcome.alone.items()},
        "speedup": outcome.speedup,
        "handoffs": counted.handoff_count,
        "bytes_parked": counted.bytes_parked,
        "bytes_restored": counted.bytes_restored,
        "snapshot_s": asdict(snapshots),
        "restore_s": asdict(restores),
        "handoff_s": asdict(spread([h.whole_s for h in counted.handoffs])),
        "each_handoff": [asdict(handoff) for handoff in counted.handoffs],
        "orchestrator": {"grants": counted.grants, "duty_cycle": counted.duty_cycle},
        "weights_identical": by_key["weights_identical"],
        "weights_sha256": _fingerprints(outcome, "weights_sha256"),
        "device_sha256": _fingerprints(outcome, "device_sha256"),
        "out_of_memory_without_time_slicing": by_key["out_of_memory_without_time_slicing"],
        "rewards_rise": by_key["rewards_rise"],
        "reward_curves": {name: job.reward_curve for name, job in together.jobs.items()},
        "workload": _workload(setting, outcome),
        "hardware": _hardware(setting),
        "measured_as": _MEASURED_AS,
        "limits": _LIMITS,
    }


def _wall_s(job: JobRecord, run: RunRecord) -> float:
    return job.ended - run.started


def _job(job: JobRecord, run: RunRecord) -> dict[str, Any]:
    phases, wall_s = job.phases(), _wall_s(job, run)
    held_s = sum(span.length_s for span in job.holds)
    return {
        "wall_s": wall_s,
        "held_s": held_s,
        "waited_s": sum(span.length_s for span in job.waits),
        "duty_cycle": held_s / wall_s,
        "on_s": phases.on_s,
        "off_s": phases.off_s,
        "reward_share": phases.off_share,
        "first_reward": job.reward_curve[0],
        "last_reward": job.reward_curve[-1],
    }


def _closed_form(sharing: list[Phases], dedicated: list[Phases]) -> dict[str, Any]:
    return {
        "formula": "T_c = max(max_i(R_i + T_on,i + max(S_i, T_off,i)), sum_i(R_i + T_on,i + S_i)); "
        "duty = sum_i(T_on,i) / T_c",
        "phases": "means of the run together: slower phases on shared CPU cores are not blamed on the hand-offs",
        "jobs": [asdict(phases) for phases in sharing],
        "cycle_s": cycle_s(sharing),
        "by_policy": {policy: duty_cycle(sharing, policy) for policy in _POLICIES},
        "duty_cycle_from_phases_alone": duty_cycle(dedicated),
        "speedup_from_phases_alone": sum(job.alone_s for job in dedicated) / cycle_s(dedicated),
    }


def _fingerprints(outcome: Outcome, key: str) -> dict[str, dict[str, str]]:
    runs = {"alone": {name: run.jobs[name] for name, run in outcome.alone.items()}, "together": outcome.together.jobs}
    return {
        name: {run: (jobs[name].last("done") or {}).get(key, "") for run, jobs in runs.items()}
        for name in outcome.alone
    }


def _workload(setting: Setting, outcome: Outcome) -> dict[str, Any]:
    recipe = Recipe("", 0)
    sizes = [event["device_bytes"] for job in outcome.together.jobs.values() if (event := job.last("loaded"))]
    return {
        "algorithm": "GRPO (group-relative advantages, clipped objective, Adam) in numpy",
        "package": f"reasoning-gym {version('reasoning-gym')}",
        "jobs": {job.name: {**asdict(job), "restrictions": dict(TASKS[job.task].config)} for job in setting.jobs},
        "steps": setting.steps,
        "prompts_per_step": recipe.prompts,
        "answers_per_prompt": recipe.group,
        "parameters": recipe.shape.parameters,
        "device_bytes_per_job": fmean(sizes) if sizes else 0,
    }


def _hardware(setting: Setting) -> dict[str, Any]:
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu_name(Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "emulated_gpu": {"memory_bytes": setting.gpu_memory, "bandwidth_bytes_per_s": setting.bandwidth},
    }


def _cpu_name(cpuinfo: str) -> str:
    named = [line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return named[0] if named else platform.machine()
