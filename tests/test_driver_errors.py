"""What drivers, runtimes and cupy say, turned into the outcome of a point or of the machine."""

from __future__ import annotations

import sys
from itertools import cycle
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from greenbench.errors import DriverTooOldError, ExitCode, FailedError, NoDriverError, PointError, StickyError, UnsupportedError

pytest.importorskip("cuda.core")

from cuda.bindings.driver import CUresult
from cuda.bindings.runtime import cudaError_t

from greenbench.gpu import driver
from tests.fake_driver import FakeDriver, cuda_error, install

# Driver and runtime names of the same code; what differs is not spelling alone.
LOST = {
    "ILLEGAL_ADDRESS": "cudaErrorIllegalAddress",
    "MISALIGNED_ADDRESS": "cudaErrorMisalignedAddress",
    "INVALID_ADDRESS_SPACE": "cudaErrorInvalidAddressSpace",
    "INVALID_PC": "cudaErrorInvalidPc",
    "ILLEGAL_INSTRUCTION": "cudaErrorIllegalInstruction",
    "HARDWARE_STACK_ERROR": "cudaErrorHardwareStackError",
    "LAUNCH_FAILED": "cudaErrorLaunchFailure",
    "LAUNCH_TIMEOUT": "cudaErrorLaunchTimeout",
    "ASSERT": "cudaErrorAssert",
    "ECC_UNCORRECTABLE": "cudaErrorECCUncorrectable",
    "NVLINK_UNCORRECTABLE": "cudaErrorNvlinkUncorrectable",
    "CONTAINED": "cudaErrorContained",
    "TENSOR_MEMORY_LEAK": "cudaErrorTensorMemoryLeak",
    "EXTERNAL_DEVICE": "cudaErrorExternalDevice",
    "MPS_CLIENT_TERMINATED": "cudaErrorMpsClientTerminated",
}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CUDA_ERROR_ILLEGAL_ADDRESS: While executing a kernel, ...", "ILLEGAL_ADDRESS"),
        ("cudaErrorIllegalAddress: an illegal memory access was encountered", "ILLEGAL_ADDRESS"),
        ("CUDARuntimeError: cudaErrorMemoryAllocation: out of memory", "OUT_OF_MEMORY"),
        ("cudaErrorLaunchFailure: unspecified launch failure", "LAUNCH_FAILED"),
        ("cudaErrorECCUncorrectable: uncorrectable ECC error encountered", "ECC_UNCORRECTABLE"),
        ("CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "INVALID_RESOURCE_CONFIGURATION"),
        ("the driver said nothing", ""),
        ("", ""),
    ],
)
def test_names_of_driver_and_runtime(text: str, name: str) -> None:
    """Both spellings give one name, wherever in the text they stand; prose gives none."""
    assert driver.error_name(text) == name


@pytest.mark.parametrize("name", LOST)
def test_errors_that_take_the_context_along(name: str) -> None:
    """Whatever leaves a context unusable is sticky in both spellings, and the codes of the installed bindings agree on it."""
    ours, theirs = getattr(CUresult, f"CUDA_ERROR_{name}"), getattr(cudaError_t, LOST[name])
    assert int(ours) == int(theirs)
    for text in (f"{ours.name}: explained", f"{theirs.name}: explained"):
        found = driver.point_error(text, "running")
        assert type(found) is StickyError
        assert str(found) == f"running: {text}"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("CUDA_ERROR_OUT_OF_MEMORY: no memory", FailedError, "out of memory: running"),
        ("cudaErrorMemoryAllocation: out of memory", FailedError, "out of memory: running"),
        (
            "OutOfMemoryError: Out of memory allocating 2,048 bytes (allocated so far: 0 bytes).",
            FailedError,
            "out of memory: running",
        ),
        ("CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: x", UnsupportedError, "running: the driver refused (915): "),
        ("CUDA_ERROR_INVALID_RESOURCE_TYPE: x", UnsupportedError, "(914)"),
        ("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: x", UnsupportedError, "(720)"),
        ("cudaErrorCooperativeLaunchTooLarge: x", UnsupportedError, "(720)"),
        ("CUDA_ERROR_INVALID_CLUSTER_SIZE: x", UnsupportedError, "INVALID_CLUSTER_SIZE"),
        ("CUDA_ERROR_NOT_SUPPORTED: x", UnsupportedError, "NOT_SUPPORTED"),
        ("CUDA_ERROR_NO_BINARY_FOR_GPU: x", UnsupportedError, "NO_BINARY_FOR_GPU"),
        ("cudaErrorNoKernelImageForDevice: x", UnsupportedError, "cudaErrorNoKernelImageForDevice"),
        ("CUDA_ERROR_INVALID_VALUE: x\na second line", FailedError, "running: CUDA_ERROR_INVALID_VALUE: x"),
        ("", FailedError, "running: no message"),
    ],
)
def test_the_outcome_of_a_point(text: str, kind: type[PointError], words: str) -> None:
    """Unsupported is not failed: each name has its class, the reason is one line and gives the code where users look it up."""
    found = driver.point_error(text, "running")
    assert type(found) is kind
    assert words in str(found)
    assert "\n" not in str(found)


def test_tuples_of_the_bindings() -> None:
    """`checked` unpacks none, one or several values, and raises the outcome that the code stands for."""
    assert driver.checked((CUresult.CUDA_SUCCESS,)) == ()
    assert driver.checked((CUresult.CUDA_SUCCESS, 7)) == 7
    assert driver.checked((CUresult.CUDA_SUCCESS, 7, 8)) == (7, 8)
    with pytest.raises(UnsupportedError, match="915"):
        driver.checked((CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, None))
    with pytest.raises(StickyError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS: error 700"):
        driver.checked((CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,))


# -- the context manager, with cupy ----------------------------------------------------------------------------------------


def fake_cupy(monkeypatch: pytest.MonkeyPatch) -> dict[str, type[Exception]]:
    """Put a cupy into sys.modules that has nothing but the exceptions of the real one."""
    kinds: dict[str, type[Exception]] = {}
    places = {
        "cupy_backends.cuda.api.driver": ("CUDADriverError", RuntimeError),
        "cupy_backends.cuda.api.runtime": ("CUDARuntimeError", RuntimeError),
        "cupy.cuda.memory": ("OutOfMemoryError", MemoryError),
        "cupy_backends.cuda.libs.cublas": ("CUBLASError", RuntimeError),
    }
    for place in places:
        words = place.split(".")
        for name in (".".join(words[:end]) for end in range(1, len(words) + 1)):
            monkeypatch.setitem(sys.modules, name, sys.modules.get(name) or ModuleType(name))
    for name, (kind, base) in places.items():
        kinds[kind] = type(kind, (base,), {})
        setattr(sys.modules[name], kind, kinds[kind])
    return kinds


@pytest.mark.parametrize(
    ("kind", "text", "outcome"),
    [
        ("CUDADriverError", "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", StickyError),
        ("CUDARuntimeError", "cudaErrorLaunchFailure: unspecified launch failure", StickyError),
        ("OutOfMemoryError", "Out of memory allocating 4,096 bytes (allocated so far: 0 bytes).", FailedError),
        ("CUBLASError", "CUBLAS_STATUS_NOT_SUPPORTED", FailedError),
    ],
)
def test_errors_of_cupy_are_outcomes(kind: str, text: str, outcome: type[PointError], monkeypatch: pytest.MonkeyPatch) -> None:
    """What cupy raises inside the block ends the point and not the worker; memory is told as in every other place."""
    raised = fake_cupy(monkeypatch)[kind]
    with pytest.raises(outcome) as told, driver.translated("allocating buffers"):
        raise raised(text)
    assert type(told.value) is outcome
    assert str(told.value).startswith("out of memory: " if kind == "OutOfMemoryError" else "allocating buffers: ")


def test_errors_of_cuda_core_are_outcomes_and_bugs_are_not() -> None:
    """cuda.core's own exception is translated without cupy; a TypeError of ours passes through as the bug that it is."""
    with pytest.raises(StickyError, match="^running: CUDA_ERROR_LAUNCH_FAILED"), driver.translated("running"):
        raise cuda_error(CUresult.CUDA_ERROR_LAUNCH_FAILED)
    with pytest.raises(TypeError), driver.translated("running"):
        raise TypeError("ours")


def test_a_launch_tells_of_the_fault_of_an_earlier_one() -> None:
    """While a block is queued, launch and event answer with the sticky error of a kernel before: it is told as one, by name."""
    from greenbench.gpu.lane import CudaLane
    from greenbench.gpu.work import KernelWork

    def lost(*_: object) -> None:
        raise cuda_error(CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)

    work: Any = object.__new__(KernelWork)
    work._core, work._shape, work._loaded = SimpleNamespace(launch=lost), SimpleNamespace(config=None), None
    work._kernel, work._host, work._next = SimpleNamespace(name="wild"), SimpleNamespace(stream=None), cycle([()])
    with pytest.raises(StickyError, match="^launching wild: CUDA_ERROR_ILLEGAL_ADDRESS"):
        work.launch()
    lane: Any = object.__new__(CudaLane)
    lane.stream, lane._events, lane._used = SimpleNamespace(record=lost), [None], 0
    with pytest.raises(StickyError, match="^recording an event: CUDA_ERROR_ILLEGAL_ADDRESS"):
        lane.mark()


# -- opening a device ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError('"cuda" is an NVIDIA driver library and can only be found via system search. Ensure ...'),
            "no NVIDIA driver (libcuda.so.1) was found on this machine",
        ),
        (RuntimeError("libcuda.so.1: cannot open shared object file"), "no NVIDIA driver (libcuda.so.1)"),
        (cuda_error(CUresult.CUDA_ERROR_NO_DEVICE), "no NVIDIA GPU is visible (CUDA_ERROR_NO_DEVICE"),
        (cuda_error(CUresult.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH), "the NVIDIA driver does not start (CUDA_ERROR_SYSTEM_DRIVER"),
    ],
)
def test_a_machine_without_a_gpu(error: Exception, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """H09: exit 4 and one line that names what is missing and the way out, with or without the library."""
    fake = FakeDriver(fails={"get_all_devices": error})
    install(monkeypatch, fake)
    with pytest.raises(NoDriverError) as raised:
        driver.open_device("0")
    assert raised.value.exit_code is ExitCode.MACHINE
    assert words in str(raised.value)
    assert "model:h200" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "devices", "words"),
    [
        ("1", 1, "--device cuda:1: this machine shows 1 GPU(s); use cuda:0"),
        ("-1", 2, "shows 2 GPU(s); use cuda:0 to cuda:1"),
        ("gpu", 1, "--device cuda:gpu: not a device number"),
        ("0", 0, "no NVIDIA GPU is visible"),
    ],
)
def test_a_device_that_is_not_there(spec: str, devices: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number that was asked for and those that exist are in the text; a machine without any names none."""
    install(monkeypatch, FakeDriver(), devices=devices)
    with pytest.raises(NoDriverError) as raised:
        driver.open_device(spec)
    assert words in str(raised.value)
    assert "cuda:-1" not in str(raised.value).replace("--device cuda:-1", "")


def test_a_device_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU in exclusive mode that another process holds is exit 4 with what the driver said, in one line."""
    install(monkeypatch, FakeDriver(fails={"set_current": cuda_error(CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE)}))
    with pytest.raises(NoDriverError, match=r"the GPU cannot be used: CUDA_ERROR_DEVICE_UNAVAILABLE") as raised:
        driver.open_device("0")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("version", [(12, 3), (12, 4), (11, 8)])
def test_h07_a_driver_too_old(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """12.3 cannot split and 12.4 has no streams: exit 4 names both and what is there, before a context or a split is made."""
    from greenbench.gpu.cuda import open_cuda

    fake = FakeDriver(version=version)
    install(monkeypatch, fake)
    with pytest.raises(DriverTooOldError) as raised:
        open_cuda("0")
    assert raised.value.exit_code is ExitCode.MACHINE
    for word in ("12.4", "12.5", f"{version[0]}.{version[1]}"):
        assert word in str(raised.value)
    assert not fake.log


def test_the_oldest_driver_that_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """12.5 opens, and its facts are read from the fake rather than from a table."""
    from greenbench.gpu import cuda

    class Nvml:
        """No NVML."""

        def __init__(self, *_: object) -> None:
            self.driver = lambda: "555.42"
            self.max_clock_mhz = lambda kind: None
            self.power_limit_w = lambda: None
            self.mig = lambda: False
            self.processes = lambda: ()

    monkeypatch.setattr(cuda, "Nvml", Nvml)
    install(monkeypatch, FakeDriver(version=(12, 5), sms=142, unit=4))
    gpu: Any = cuda.open_cuda("0")
    facts = gpu.device
    assert (facts.cuda, facts.sm_count, facts.min_partition, facts.alignment) == ((12, 5), 142, 4, 4)
    assert (facts.split_api, facts.driver) == ("count", "555.42")
    assert facts.workqueue_obstacle == "workqueue configuration needs driver 13.1, this is 12.5"
    gpu.close()
    gpu.close()
