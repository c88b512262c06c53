"""The narrow door to cuda.core and cuda.bindings: lazy imports, and their exceptions turned into ours."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from greenbench.errors import FailedError, MissingPackageError, NoDriverError, PointError, StickyError, UnsupportedError

# After one of these the CUDA context answers every later call with the same error: the process is lost for measuring.
STICKY = frozenset(
    {
        "ILLEGAL_ADDRESS",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "ILLEGAL_INSTRUCTION",
        "HARDWARE_STACK_ERROR",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "ASSERT",
        "ECC_UNCORRECTABLE",
        "NVLINK_UNCORRECTABLE",
        "CONTAINED",
        "TENSOR_MEMORY_LEAK",
        "EXTERNAL_DEVICE",
        "MPS_CLIENT_TERMINATED",
    }
)
UNSUPPORTED = frozenset(
    {
        "INVALID_RESOURCE_CONFIGURATION",
        "INVALID_RESOURCE_TYPE",
        "NOT_SUPPORTED",
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        "INVALID_CLUSTER_SIZE",
        "NO_BINARY_FOR_GPU",
    }
)
# The runtime calls some of the driver's errors by other names.
SAME = {
    "LAUNCH_FAILURE": "LAUNCH_FAILED",
    "MEMORY_ALLOCATION": "OUT_OF_MEMORY",
    "NO_KERNEL_IMAGE_FOR_DEVICE": "NO_BINARY_FOR_GPU",
}
CUPY_OUT_OF_MEMORY = "OutOfMemoryError"
CODES = {"INVALID_RESOURCE_CONFIGURATION": 915, "INVALID_RESOURCE_TYPE": 914, "COOPERATIVE_LAUNCH_TOO_LARGE": 720}


def need_driver() -> None:
    """Raise NoDriverError where the driver's library cannot be loaded: asked first, since no package helps without it."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoDriverError(no_driver_text(error)) from error


def cuda_core() -> Any:
    """Import cuda.core, or say which extra installs it."""
    try:
        import cuda.core
    except ImportError as error:
        raise MissingPackageError(
            f"an NVIDIA driver is here, but cuda-python is not ({error}): run pip install '.[cu13]' in the checkout "
            "(driver 580 or newer) or pip install '.[cu12]', or use --device model:h200"
        ) from error
    return cuda.core


def bindings() -> Any:
    """Import the raw driver bindings, for the calls that cuda.core does not have."""
    cuda_core()
    from cuda.bindings import driver

    return driver


def cuda_error() -> type[Exception]:
    """Return cuda.core's exception for driver results; it is private until cuda.core 1.3."""
    try:
        from cuda.core import CUDAError
    except ImportError:
        from cuda.core._utils.cuda_utils import CUDAError
    error: type[Exception] = CUDAError
    return error


def cupy() -> Any:
    """Import cupy, or say which extra installs it."""
    try:
        import cupy
    except ImportError as error:
        raise MissingPackageError(f"cupy is not installed ({error}): run pip install '.[cu13]' in the checkout") from error
    return cupy


def cupy_stream(stream: Any) -> Any:
    """Return cupy's view of a stream of ours; as a context manager it becomes cupy's current stream."""
    kind = cupy().cuda.Stream
    if hasattr(kind, "from_external"):
        return kind.from_external(stream)
    return cupy().cuda.ExternalStream(int(stream.handle))


def checked(answer: tuple[Any, ...], what: str = "driver call") -> Any:
    """Unpack what a cuda.bindings call returned; raise PointError's kin, saying `what` failed, where its code is not success."""
    code, *rest = answer
    if int(code) != 0:
        raise point_error(f"{code.name}: error {int(code)}", what)
    return rest[0] if len(rest) == 1 else tuple(rest)


def error_name(text: str) -> str:
    """Return the driver's `ILLEGAL_ADDRESS` for CUDA_ERROR_ILLEGAL_ADDRESS and cudaErrorIllegalAddress alike, or ''."""
    found = re.search(r"CUDA_ERROR_([A-Z0-9_]+)", text)
    if found:
        return found.group(1)
    found = re.search(r"cudaError([A-Z]\w+)", text)
    if found:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", found.group(1)).upper()
        return SAME.get(words, words)
    return ""


def point_error(text: str, what: str) -> FailedError | UnsupportedError:
    """Turn a driver's message into the outcome of a point: sticky, unsupported or failed."""
    name = error_name(text)
    first = _first_line(text) or "no message"
    if name in STICKY:
        return StickyError(f"{what}: {first}")
    if name in UNSUPPORTED:
        code = f" ({CODES[name]})" if name in CODES else ""
        return UnsupportedError(f"{what}: the driver refused{code}: {first}")
    if name == "OUT_OF_MEMORY" or text.startswith(CUPY_OUT_OF_MEMORY):
        return FailedError(f"out of memory: {what}")
    return FailedError(f"{what}: {first}")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn driver and cupy errors inside the block into PointErrors that say what was tried."""
    kinds: tuple[type[Exception], ...] = (cuda_error(), *_cupy_errors())
    try:
        yield
    except kinds as error:
        raise point_error(_text(error), what) from error


def _text(error: Exception) -> str:
    return f"{CUPY_OUT_OF_MEMORY}: {error}" if type(error).__name__ == CUPY_OUT_OF_MEMORY else str(error)


def _first_line(text: str) -> str:
    # The driver explains itself in several sentences; the first says what happened.
    line = next(iter(text.strip().splitlines()), "")
    return line.partition(". ")[0].rstrip(".")


def _cupy_errors() -> tuple[type[Exception], ...]:
    import sys

    if "cupy" not in sys.modules:
        return ()
    from cupy.cuda.memory import OutOfMemoryError
    from cupy_backends.cuda.api.driver import CUDADriverError
    from cupy_backends.cuda.api.runtime import CUDARuntimeError

    # cuBLAS is loaded only where a yardstick is measured.
    cublas = sys.modules.get("cupy_backends.cuda.libs.cublas")
    return (CUDADriverError, CUDARuntimeError, OutOfMemoryError, *([cublas.CUBLASError] if cublas else []))


def driver_version() -> tuple[int, int]:
    """Return the CUDA version that the driver implements, (13, 0); makes no context. Raises NoDriverError."""
    raw = bindings()
    try:
        number = int(checked(raw.cuDriverGetVersion()))
    except (RuntimeError, PointError) as error:
        raise NoDriverError(no_driver_text(error)) from error
    return number // 1000, number % 1000 // 10


def open_device(spec: str) -> Any:
    """Return cuda.core's Device for `0`, `1`, ... with its primary context current.

    Raises NoDriverError with one sentence where there is no driver, no GPU, or not that one.
    """
    core = cuda_core()
    try:
        index = int(spec)
    except ValueError:
        raise NoDriverError(f"--device cuda:{spec}: not a device number; use cuda:0, cuda:1, ... or model:h200") from None
    try:
        count = len(core.Device.get_all_devices())
    except (RuntimeError, cuda_error()) as error:
        raise NoDriverError(no_driver_text(error)) from error
    if count == 0:
        raise NoDriverError(_no_gpu_text("the driver shows none"))
    if not 0 <= index < count:
        raise NoDriverError(f"--device cuda:{spec}: this machine shows {count} GPU(s); use cuda:0 to cuda:{count - 1}")
    device = core.Device(index)
    try:
        device.set_current()
    except cuda_error() as error:
        raise NoDriverError(f"--device cuda:{spec}: the GPU cannot be used: {_first_line(str(error))}") from error
    return device


def no_driver_text(error: Exception) -> str:
    """One sentence for a machine on which CUDA does not start."""
    text = str(error)
    # The words of cuda.pathfinder, which names the library `cuda`, and of the loader.
    if "NVIDIA driver library" in text or "libcuda" in text:
        return (
            "no NVIDIA driver (libcuda.so.1) was found on this machine; "
            "install one, or use --device model:h200 for the modelled device"
        )
    first = _first_line(text) or type(error).__name__
    if error_name(text) == "NO_DEVICE":
        return _no_gpu_text(first)
    return f"the NVIDIA driver does not start ({first}); check nvidia-smi, or use --device model:h200"


def _no_gpu_text(why: str) -> str:
    return f"no NVIDIA GPU is visible ({why}); check CUDA_VISIBLE_DEVICES and nvidia-smi, or use --device model:h200"
