"""Make an environment look as if NVRTC were not installed: run with this folder on PYTHONPATH."""

import cuda.pathfinder

_load = cuda.pathfinder.load_nvidia_dynamic_lib


def _load_all_but_nvrtc(name):
    if name == "nvrtc":
        raise cuda.pathfinder.DynamicLibNotFoundError('Failure finding "libnvrtc.so": No such file: libnvrtc.so*')
    return _load(name)


cuda.pathfinder.load_nvidia_dynamic_lib = _load_all_but_nvrtc
