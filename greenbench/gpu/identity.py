"""Asks a real device what it is: facts for run.json and for `greenbench devices`. Nothing is tabled here."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from greenbench.gpu import driver
from greenbench.gpu.evidence import Nvml
from greenbench.gpu.partition import Splitter, workqueue_obstacle
from greenbench.gpu.toolkit import cuda_path_warning
from greenbench.schema import Backend, DeviceFacts

COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive_process"}
PACKAGES = (
    "cuda-core",
    "cuda-bindings",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "nvtx",
    "numpy",
    "nvidia-cuda-nvrtc",
    "nvidia-cublas",
    "torch",
)


def device_facts(device: Any, nvml: Nvml, splitter: Splitter, index: int) -> DeviceFacts:
    """Return everything that the driver, the bindings and NVML say of the device."""
    properties = device.properties
    capability = device.compute_capability
    sm = device.resources.sm
    version = driver.driver_version()
    free_total = driver.checked(driver.bindings().cuMemGetInfo())
    return DeviceFacts(
        name=str(device.name),
        uuid=str(device.uuid),
        index=index,
        backend=Backend.CUDA,
        compute_capability=(int(capability[0]), int(capability[1])),
        sm_count=int(sm.sm_count),
        min_partition=int(sm.min_partition_size),
        alignment=int(sm.coscheduled_alignment),
        driver=nvml.driver(),
        cuda=version,
        nvrtc=nvrtc_version(),
        l2_bytes=int(properties.l2_cache_size),
        memory_bytes=int(free_total[1]),
        smem_per_sm_bytes=int(properties.max_shared_memory_per_multiprocessor),
        smem_optin_bytes=int(properties.max_shared_memory_per_block_optin),
        threads_per_sm=int(properties.max_threads_per_multiprocessor),
        split_api="structured" if splitter.structured else "count",
        workqueue_obstacle=workqueue_obstacle(device),
        max_sm_clock_mhz=nvml.max_clock_mhz("sm"),
        max_mem_clock_mhz=nvml.max_clock_mhz("memory"),
        mem_bus_bits=int(properties.global_memory_bus_width) or None,
        power_limit_w=nvml.power_limit_w(),
        ecc=bool(properties.ecc_enabled),
        mig=nvml.mig(),
        mps=bool(properties.mps_enabled),
        compute_mode=COMPUTE_MODES.get(int(properties.compute_mode), str(properties.compute_mode)),
        processes=nvml.processes(),
        packages=package_versions(),
        warnings=tuple(filter(None, [cuda_path_warning()])),
    )


def nvrtc_version() -> str:
    """Return `13.0`, or an empty string where NVRTC cannot be loaded (compiling says how to get it)."""
    from cuda.bindings import nvrtc

    try:
        code, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError:
        return ""
    return f"{major}.{minor}" if int(code) == 0 else ""


def package_versions() -> tuple[tuple[str, str], ...]:
    """Return installed versions of the packages that can change a figure."""
    found = []
    for name in PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)
