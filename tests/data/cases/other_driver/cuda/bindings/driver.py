"""The driver says its version, and nothing else."""

import os


def cuDriverGetVersion() -> tuple[int, int]:
    """Return (success, 12030) for 12.3."""
    return 0, int(os.environ["FAKE_DRIVER"])
