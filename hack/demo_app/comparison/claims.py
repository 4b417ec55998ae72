"""What the demonstration claims, each claim with the figures that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from comparison.measures import JobRecord, RunRecord, rises

RISE = 0.02  # reward by which the last quarter of a curve must exceed the first
REWARD_SHARE = 0.3  # of a step, at least: 30 to 60 % is usual in reinforcement learning on code, a busy machine adds


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds, and the evidence."""

    key: str
    sentence: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Outcome:
    """All runs of a demonstration, and what the orchestrator counted while the jobs took turns."""

    alone: Mapping[str, RunRecord]  # by job
    together: RunRecord
    unmanaged: RunRecord  # both at once without taking turns
    handoffs: int
    bytes_parked: int

    @property
    def alone_s(self) -> float:
        """One after the other (seconds)."""
        return sum(run.wall_s for run in self.alone.values())

    @property
    def speedup(self) -> float:
        """One after the other ÷ together."""
        return self.alone_s / self.together.wall_s


def check(outcome: Outcome) -> list[Claim]:
    """All claims."""
    return [
        _weights_identical(outcome),
        _rewards_rise(outcome),
        _out_of_memory(outcome),
        _faster(outcome),
        _reward_share(outcome),
        Claim(
            "state_was_parked",
            "The jobs took turns, and their state went to host memory and back",
            outcome.handoffs > 0 and outcome.bytes_parked > 0,
            f"{outcome.handoffs} hand-offs, {outcome.bytes_parked / 2**20:,.0f} MiB parked",
        ),
    ]


def _fingerprints(job: JobRecord) -> tuple[str, str]:
    done = job.last("done") or {}
    return done.get("weights_sha256", "none"), done.get("device_sha256", "none")


def _weights_identical(outcome: Outcome) -> Claim:
    pairs = {
        name: (_fingerprints(run.jobs[name]), _fingerprints(outcome.together.jobs[name]))
        for name, run in outcome.alone.items()
    }
    equal = bool(pairs) and all(alone == together and "none" not in alone for alone, together in pairs.values())
    shown = ", ".join(f"{name} {alone[0][:12]} / {together[0][:12]}" for name, (alone, together) in pairs.items())
    return Claim(
        "weights_identical", "Each job's weights are the same alone and together, to the last bit", equal, shown
    )


def _rewards_rise(outcome: Outcome) -> Claim:
    curves = {name: job.reward_curve for name, job in outcome.together.jobs.items()}
    risen = bool(curves) and all(rises(curve, RISE) for curve in curves.values())
    ends = ", ".join(f"{name} {curve[0]:.2f} → {curve[-1]:.2f}" for name, curve in curves.items() if curve)
    return Claim("rewards_rise", "Both jobs learn", risen, ends or "no rewards")


def _out_of_memory(outcome: Outcome) -> Claim:
    jobs = outcome.unmanaged.jobs
    refused = {name: event["error"] for name, job in jobs.items() if (event := job.last("out_of_memory"))}
    holds = len(jobs) == 2 and list(refused.values()) == ["CUDA_ERROR_OUT_OF_MEMORY"]
    shown = ", ".join(f"{name}: {error}" for name, error in refused.items()) or "both fitted"
    return Claim("out_of_memory_without_time_slicing", "Without taking turns only one of them fits", holds, shown)


def _faster(outcome: Outcome) -> Claim:
    holds = outcome.speedup > 1
    evidence = f"{outcome.alone_s:.1f} s → {outcome.together.wall_s:.1f} s"
    if not holds:
        evidence += f"; each phase took {_slowdown(outcome):.1f} x as long as alone: were the CPU cores busy otherwise?"
    return Claim("faster_together", "Together they need less time than one after the other", holds, evidence)


def _reward_share(outcome: Outcome) -> Claim:
    shares = {name: run.jobs[name].phases().off_share for name, run in outcome.alone.items()}
    holds = bool(shares) and all(share >= REWARD_SHARE for share in shares.values())
    evidence = ", ".join(f"{name} {share:.0%} alone" for name, share in shares.items())
    return Claim("reward_share", f"Rewards take at least {REWARD_SHARE:.0%} of a step", holds, evidence)


def _slowdown(outcome: Outcome) -> float:
    alone = sum(run.jobs[name].phases().alone_s for name, run in outcome.alone.items())
    return sum(job.phases().alone_s for job in outcome.together.jobs.values()) / alone
