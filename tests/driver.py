"""Ask the NVIDIA driver which extra of greenbench fits it: print `cu13` or `cu12`, or nothing where no driver answers.

Run as a script by the Makefile (before anything is installed) and by conftest.py (so that no test process touches CUDA).
"""

import ctypes


def fitting_extra() -> str:
    """Return the extra for this driver, or an empty string where there is no driver or no device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    version, count = ctypes.c_int(), ctypes.c_int()
    answers = (
        cuda.cuInit(0) == 0
        and cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
        and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    )
    if not answers or count.value == 0:
        return ""
    return "cu13" if version.value >= 13000 else "cu12"


if __name__ == "__main__":
    print(fitting_extra())
