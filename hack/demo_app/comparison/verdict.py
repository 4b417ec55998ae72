"""The report as tables for people, less than 100 columns wide."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from comparison.screen import sparkline

_MIB = 1 << 20


def show(report: dict[str, Any], console: Console) -> None:
    """Prints the report."""
    console.print()
    console.print(_runs(report))
    console.print(_machinery(report))
    console.print(_learning(report))
    console.print(_claims(report))
    hardware, workload = report["hardware"], report["workload"]
    gpu = hardware["emulated_gpu"]
    console.print(
        f"{hardware['cpus']} CPUs ({hardware['cpu']}), emulated GPU of {gpu['memory_bytes'] // _MIB} MiB "
        f"with {gpu['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s each way; "
        f"{workload['device_bytes_per_job'] / _MIB:.0f} MiB and {workload['steps']} steps per job, "
        f"{workload['prompts_per_step']} prompts x {workload['answers_per_prompt']} answers.",
        style="dim",
        highlight=False,
    )
    console.print(report["measured_as"], report["limits"], style="dim", highlight=False)
    console.print(f"The whole demonstration took {report['wall_s']:.0f} s.", highlight=False)
    for claim in report["claims"]:
        if not claim["holds"]:
            failed = f"Does not hold: {claim['sentence']} ({claim['evidence']})."
            console.print(failed, style="bold red", highlight=False)


def _runs(report: dict[str, Any]) -> Table:
    table = Table(title="Two jobs, one GPU", title_justify="left", title_style="bold")
    for heading in ("", "wall", "device in use", "on / off phase", "waited", "stretch"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for where in ("alone", "together"):
        for name, job in report[where]["jobs"].items():
            stretch = f"{report['stretch'][name]:.2f} x" if where == "together" else ""
            phases = f"{job['on_s']:.2f} / {job['off_s']:.2f} s"
            cells = (f"{job['wall_s']:.1f} s", f"{job['duty_cycle']:.0%}", phases, f"{job['waited_s']:.1f} s", stretch)
            table.add_row(f"{name} {'alone' if where == 'alone' else 'when sharing'}", *cells)
        whole = "one after the other" if where == "alone" else "both together"
        gain = f"{report['speedup']:.2f} x as fast" if where == "together" else ""
        table.add_row(
            whole, f"{report[where]['wall_s']:.1f} s", f"{report[where]['duty_cycle']:.1%}", "", "", gain, style="bold"
        )
        table.add_section()
    form = report["closed_form"]
    share = f"{report['duty_cycle_of_closed_form']:.0%} of it reached"
    table.add_row("closed form, these phases", "", f"{report['closed_form_duty_cycle']:.1%}", share, "", "")
    table.add_row(
        "closed form, phases alone", "", f"{form['duty_cycle_from_phases_alone']:.1%}", "", "",
        f"{form['speedup_from_phases_alone']:.2f} x as fast",
    )  # fmt: skip
    return table


def _machinery(report: dict[str, Any]) -> Table:
    table = Table(title="Hand-offs", title_justify="left", title_style="bold")
    for heading in ("number", "parked", "put back", "snapshot p50 / max", "restore p50 / max", "whole p50 / max"):
        table.add_column(heading, justify="right", no_wrap=True)
    sizes = (f"{report[key] / _MIB:,.0f} MiB" for key in ("bytes_parked", "bytes_restored"))
    times = (
        f"{report[key]['p50'] * 1e3:.0f} / {report[key]['max'] * 1e3:.0f} ms"
        for key in ("snapshot_s", "restore_s", "handoff_s")
    )
    table.add_row(str(report["handoffs"]), *sizes, *times)
    return table


def _learning(report: dict[str, Any]) -> Table:
    table = Table(title="Mean reward per step", title_justify="left", title_style="bold")
    for heading in ("job", "task", "seed", "first", "last", "curve"):
        table.add_column(heading, no_wrap=True)
    for name, job in report["workload"]["jobs"].items():
        curve = report["reward_curves"][name]
        table.add_row(name, job["task"], str(job["seed"]), f"{curve[0]:.3f}", f"{curve[-1]:.3f}", sparkline(curve, 48))
    return table


def _claims(report: dict[str, Any]) -> Table:
    table = Table(title="Claims", title_justify="left", title_style="bold", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(width=46)
    table.add_column(width=38)
    for claim in report["claims"]:
        holds = claim["holds"]
        table.add_row(
            "yes" if holds else "NO", claim["sentence"], claim["evidence"], style="green" if holds else "bold red"
        )
    return table
