"""What MPS does to green partitions, asked of the environment alone: the same rule on a real and on the modelled device."""

from __future__ import annotations

import os

SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def share_obstacle() -> str:
    """Return why this process must not measure partitions under its MPS share, or an empty string."""
    share = os.environ.get(SHARE, "")
    if share in {"", "100", "100.0"}:
        return ""
    return f"{SHARE}={share} overrides green partitions under MPS; unset it or set it to 100"
