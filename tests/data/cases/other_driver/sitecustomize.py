"""Make an environment look as if the driver's library were there: run with this folder on PYTHONPATH."""

import ctypes


class _LoaderWithDriver(ctypes.CDLL):
    """A driver library that is there but empty: enough to be found."""

    def __init__(self, name, *args, **kwargs):
        super().__init__(None if name == "libcuda.so.1" else name, *args, **kwargs)


ctypes.CDLL = _LoaderWithDriver
