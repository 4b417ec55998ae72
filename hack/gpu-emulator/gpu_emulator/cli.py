"""``gpu-emulator [options]`` serves, ``gpu-emulator run [options] -- COMMAND`` serves around a command."""

import argparse
import asyncio
import json
import subprocess
import sys
from pathlib import Path

from gpu_emulator.checkpoint import Bandwidth
from gpu_emulator.daemon import Settings, run
from gpu_emulator.emulator import Emulator, EmulatorError
from gpu_emulator.quantities import parse_bytes, parse_rate


def _add_options(parser: argparse.ArgumentParser) -> None:
    defaults = Settings(Path())
    parser.add_argument("--socket", type=Path, help="unix socket to listen on (serve: required)")
    parser.add_argument("--gpus", type=int, default=defaults.gpus)
    parser.add_argument("--memory", type=parse_bytes, default=defaults.memory, metavar="SIZE", help="per GPU; 256MiB")
    parser.add_argument("--bandwidth-out", type=parse_rate, default=0, metavar="RATE", help="of a checkpoint; 3GB/s")
    parser.add_argument("--bandwidth-in", type=parse_rate, default=0, metavar="RATE", help="of a restore; 8GB/s")
    parser.add_argument("--context-overhead", type=parse_bytes, default=defaults.context_overhead, metavar="SIZE")
    parser.add_argument("--driver-version", default=defaults.driver_version)
    parser.add_argument("--name", default=defaults.name, help="product name of the GPUs")
    parser.add_argument("--dev-root", type=Path, help="folder for nvidia0, nvidiactl")
    parser.add_argument("--faults", type=Path, metavar="FILE.json", help="fault script")
    parser.add_argument("--collective-window", type=float, default=defaults.collective_window, metavar="SECONDS")
    parser.add_argument("--uuid-seed", default=defaults.uuid_seed, help="another seed gives other UUIDs")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="append what happens, a JSON object a line")
    parser.add_argument("--mig", action="store_true", help="GPUs are in MIG mode")


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        socket_path=options.socket,
        gpus=options.gpus,
        memory=options.memory,
        bandwidth=Bandwidth(options.bandwidth_out, options.bandwidth_in),
        context_overhead=options.context_overhead,
        driver_version=options.driver_version,
        name=options.name,
        dev_root=options.dev_root,
        faults_file=options.faults,
        collective_window=options.collective_window,
        uuid_seed=options.uuid_seed,
        mig=options.mig,
        trace=options.trace,
    )


def _serve(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="gpu-emulator", description="Serve emulated GPUs on a unix socket.")
    _add_options(parser)
    parser.add_argument("--lifeline", type=int, metavar="FD", help="socket: r when ready; its end ends us")
    options = parser.parse_args(arguments)
    if options.socket is None:
        parser.error("--socket is required")
    try:
        asyncio.run(run(_settings(options), lifeline=options.lifeline))
    except (OSError, ValueError) as error:
        print(f"gpu-emulator: {error}", file=sys.stderr)
        return 1
    return 0


def _run_command(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="gpu-emulator run", description="Run a command with emulated GPUs.")
    _add_options(parser)
    parser.add_argument("--hide", action="append", default=[], metavar="PATTERN", help="symbols to lack")
    parser.add_argument("command", nargs="+", help="after --")
    options = parser.parse_args(arguments)
    try:
        with _emulator(options) as emulator:
            code = subprocess.run(options.command, env=emulator.env, check=False).returncode
    except (EmulatorError, OSError, ValueError) as error:
        print(f"gpu-emulator: {error}", file=sys.stderr)
        return 1
    return code if code >= 0 else 128 - code


def _emulator(options: argparse.Namespace) -> Emulator:
    return Emulator(
        gpus=options.gpus,
        memory=options.memory,
        faults=json.loads(options.faults.read_text()) if options.faults else (),
        bandwidth_out=options.bandwidth_out,
        bandwidth_in=options.bandwidth_in,
        driver_version=options.driver_version,
        context_overhead=options.context_overhead,
        hide=options.hide,
        dev_root=options.dev_root,
        mig=options.mig,
        collective_window=options.collective_window,
        uuid_seed=options.uuid_seed,
        name=options.name,
        socket_path=options.socket,
        trace=options.trace,
    )


def main() -> None:
    arguments = sys.argv[1:]
    sys.exit(_run_command(arguments[1:]) if arguments[:1] == ["run"] else _serve(arguments))
