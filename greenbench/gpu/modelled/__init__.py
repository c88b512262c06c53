"""The modelled device: `--device model:h200[@13.1]` or `model:FILE.toml`. It runs no code, and says so wherever it answers."""

from __future__ import annotations

from greenbench.gpu.modelled.device import ModelledGpu
from greenbench.gpu.modelled.spec import read_spec


def open_modelled(spec: str) -> ModelledGpu:
    """Open the device that stands after `model:`; raises UsageError or DriverTooOldError."""
    return ModelledGpu(read_spec(spec))


__all__ = ["ModelledGpu", "open_modelled"]
