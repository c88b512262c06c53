"""Three ways to make a green context of a lane's SMs: cuda.core, the driver's own calls, the runtime's execution contexts."""

from __future__ import annotations

from typing import Any, Protocol

from greenbench.errors import UnsupportedError
from greenbench.gpu import driver
from greenbench.gpu.partition import IGNORE_COSCHEDULING, Slice
from greenbench.schema import Api

NON_BLOCKING = 1
DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM, required before driver 13.1


class Maker(Protocol):
    """Makes contexts of the same SMs again and again, and streams in them."""

    def create(self) -> Any:
        """Create a context from resources that were split before; a descriptor of them, where the API wants one, is included."""

    def destroy(self, context: Any) -> None:
        """Destroy a context whose streams are destroyed."""

    def create_stream(self, context: Any) -> Any:
        """Create a non-blocking stream in a context."""

    def destroy_stream(self, stream: Any) -> None:
        """Destroy a stream that is idle."""

    def launchable(self, stream: Any) -> Any:
        """Return cuda.core's view of a stream, to launch on."""


class CoreMaker:
    """cuda.core: Device.create_context and Context.create_stream."""

    def __init__(self, core: Any, device: Any, piece: Slice) -> None:
        if piece.raw:
            raise UnsupportedError("cuda.core makes no context of units of 2 SMs before driver 13.1; take api = 1, the driver's")
        self._core, self._device, self._resources = core, device, list(piece.resources)

    def create(self) -> Any:
        """Create a context."""
        return self._device.create_context(self._core.ContextOptions(resources=self._resources))

    def destroy(self, context: Any) -> None:
        """Destroy it."""
        context.close()

    def create_stream(self, context: Any) -> Any:
        """Create a stream."""
        return context.create_stream(self._core.StreamOptions(nonblocking=True))

    def destroy_stream(self, stream: Any) -> None:
        """Destroy it."""
        stream.close()

    def launchable(self, stream: Any) -> Any:
        """Return the stream."""
        return stream


class DriverMaker:
    """cuDevResourceGenerateDesc and cuGreenCtxCreate, cuGreenCtxStreamCreate."""

    def __init__(self, core: Any, device: Any, piece: Slice, sms: int) -> None:
        self._core, self._drv = core, driver.bindings()
        self._device = driver.checked(self._drv.cuDeviceGet(int(device.device_id)))
        self._resources = list(piece.resources) if piece.raw else [self._split(sms)]

    def _split(self, sms: int) -> Any:
        drv = self._drv
        whole = driver.checked(drv.cuDeviceGetDevResource(self._device, drv.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
        if int(whole.sm.smCount) == sms:
            return whole
        groups, _, _ = driver.checked(drv.cuDevSmResourceSplitByCount(1, whole, _split_flags(whole, sms), sms))
        return groups[0]

    def create(self) -> Any:
        """Create a context."""
        desc = driver.checked(self._drv.cuDevResourceGenerateDesc(self._resources, len(self._resources)))
        return driver.checked(self._drv.cuGreenCtxCreate(desc, self._device, DEFAULT_STREAM))

    def destroy(self, context: Any) -> None:
        """Destroy it."""
        driver.checked(self._drv.cuGreenCtxDestroy(context))

    def create_stream(self, context: Any) -> Any:
        """Create a stream."""
        return driver.checked(self._drv.cuGreenCtxStreamCreate(context, NON_BLOCKING, 0))

    def destroy_stream(self, stream: Any) -> None:
        """Destroy it."""
        driver.checked(self._drv.cuStreamDestroy(stream))

    def launchable(self, stream: Any) -> Any:
        """Wrap the handle."""
        return self._core.Stream.from_handle(int(stream))


class RuntimeMaker:
    """cudaGreenCtxCreate and cudaExecutionCtxStreamCreate (runtime and driver 13.1 or newer)."""

    def __init__(self, core: Any, device: Any, sms: int) -> None:
        self._core, self._rt, self._device = core, runtime(), int(device.device_id)
        if not hasattr(self._rt, "cudaGreenCtxCreate"):
            raise UnsupportedError("execution contexts of the runtime need cuda-python 13.1 or newer; update cuda-bindings")
        # Keeps the primary context alive, which every execution context retains.
        driver.checked(self._rt.cudaInitDevice(self._device, 0, 0))
        kind = self._rt.cudaDevResourceType.cudaDevResourceTypeSm
        whole = driver.checked(self._rt.cudaDeviceGetDevResource(self._device, kind))
        if int(whole.sm.smCount) == sms:
            self._resource = whole
        else:
            flags = _split_flags(whole, sms)
            self._resource = driver.checked(self._rt.cudaDevSmResourceSplitByCount(1, whole, flags, sms))[0][0]

    def create(self) -> Any:
        """Create a context."""
        desc = driver.checked(self._rt.cudaDevResourceGenerateDesc([self._resource], 1))
        return driver.checked(self._rt.cudaGreenCtxCreate(desc, self._device, 0))

    def destroy(self, context: Any) -> None:
        """Destroy it."""
        driver.checked(self._rt.cudaExecutionCtxDestroy(context))

    def create_stream(self, context: Any) -> Any:
        """Create a stream."""
        return driver.checked(self._rt.cudaExecutionCtxStreamCreate(context, NON_BLOCKING, 0))

    def destroy_stream(self, stream: Any) -> None:
        """Destroy it."""
        driver.checked(self._rt.cudaStreamDestroy(stream))

    def launchable(self, stream: Any) -> Any:
        """Wrap the handle."""
        return self._core.Stream.from_handle(int(stream))


def runtime() -> Any:
    """Import the runtime's bindings."""
    from cuda.bindings import runtime

    return runtime


def maker(api: Api, core: Any, device: Any, piece: Slice, sms: int) -> Maker:
    """Return the maker of an API for a lane's SMs."""
    if api is Api.CORE:
        return CoreMaker(core, device, piece)
    return DriverMaker(core, device, piece, sms) if api is Api.DRIVER else RuntimeMaker(core, device, sms)


def _split_flags(whole: Any, sms: int) -> int:
    """Return the flag for counts below the unit that is scheduled together (--granularity 2)."""
    together = int(whole.sm.smCoscheduledAlignment)
    return IGNORE_COSCHEDULING if together and sms % together else 0


__all__ = ["Maker", "maker", "runtime"]
