"""NVRTC, or the loader's error where there is none."""

import os


def nvrtcVersion() -> tuple[int, int, int]:
    """Return (success, major, minor)."""
    if not os.environ["FAKE_NVRTC"]:
        raise RuntimeError('Failure finding "libnvrtc.so": No such file: libnvrtc.so*')
    major, minor = os.environ["FAKE_NVRTC"].split(".")
    return 0, int(major), int(minor)
