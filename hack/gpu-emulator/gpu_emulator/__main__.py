"""``python -m gpu_emulator``."""

from gpu_emulator.cli import main

main()
