"""The part of cuda.core that is used before a device is open."""

import os
from pathlib import Path


class CUDAError(Exception):
    """A driver result."""


class Program:
    """Never made."""


class Device:
    """One device."""

    def __init__(self, index: int = 0) -> None:
        self.device_id = index

    @classmethod
    def get_all_devices(cls) -> "tuple[Device, ...]":
        """There is one."""
        return (cls(),)

    def set_current(self) -> None:
        """Make the primary context."""
        with Path(os.environ["FAKE_LOG"]).open("a") as file:
            file.write("context\n")
        raise CUDAError("CUDA_ERROR_UNKNOWN: this device is not there")
