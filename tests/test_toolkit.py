"""Which NVRTC and which headers: one version for both, a warning for a stray CUDA_PATH, and what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from greenbench.errors import MissingPackageError
from greenbench.gpu import toolkit

ROOT = Path(__file__).parent.parent


def include_folder(root: Path, version: int, *, cccl: bool = False) -> Path:
    """Make an include folder that says which CUDA it is of."""
    folder = root / "include"
    folder.mkdir(parents=True)
    (folder / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n", encoding="utf-8")
    if cccl:
        (folder / "cccl").mkdir()
    return folder


def test_headers_are_nvrtcs_own_version_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 13.3 on they are in NVRTC; before, a toolkit of the same version with its CCCL; another version is refused."""
    assert toolkit.find_headers((13, 3)) == toolkit.Headers(label="bundled with NVRTC 13.3", bundled=True)
    folders: dict[str, Path | None] = {"cudart": None, "cccl": None}
    monkeypatch.setattr(toolkit, "_header_folder", folders.get)
    assert "no CUDA headers were found for NVRTC 13.0; install nvidia-cuda-runtime" in toolkit.find_headers((13, 0)).problem
    folders["cudart"] = include_folder(tmp_path / "a", 13000, cccl=True)
    assert toolkit.find_headers((13, 0)).paths == (str(tmp_path / "a" / "include"), str(tmp_path / "a" / "include" / "cccl"))
    assert toolkit.find_headers((13, 0)).label == f"CUDA 13.0 at {tmp_path / 'a' / 'include'}"
    mixed = toolkit.find_headers((13, 1))
    assert (mixed.paths, mixed.label) == ((), "")
    assert mixed.problem.startswith(
        f"the CUDA headers at {tmp_path / 'a' / 'include'} are of CUDA 13.0 and NVRTC is 13.1, and the"
    )
    folders["cudart"] = include_folder(tmp_path / "nvidia" / "cuda_runtime", 12090)
    folders["cccl"] = include_folder(tmp_path / "elsewhere" / "cuda_cccl", 12090)
    assert toolkit.find_headers((12, 9)).paths == (str(folders["cudart"]),)
    folders["cccl"] = include_folder(tmp_path / "nvidia" / "cuda_cccl", 12090)
    assert toolkit.find_headers((12, 9)).paths == (str(folders["cudart"]), str(folders["cccl"]))
    assert "nvidia-cuda-runtime-cu12" in toolkit.find_headers((12, 8)).problem
    (folders["cudart"] / "cuda_runtime_api.h").unlink()
    assert "are of an unknown version" in toolkit.find_headers((12, 9)).problem


def test_a_stray_cuda_path_gives_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is read from version.json, the headers or the folder's name; NVRTC's own version and no version are silent."""
    monkeypatch.setattr(toolkit, "nvrtc_version", lambda: (13, 5))
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert toolkit.cuda_path_warning() == ""
    monkeypatch.setenv("CUDA_PATH", "/usr/local/cuda-12.2")
    assert toolkit.cuda_path_warning().startswith(
        "CUDA_PATH=/usr/local/cuda-12.2 is CUDA 12.2, but kernels are compiled by NVRTC 13.5; "
    )
    for value in ("/opt/cuda-13.5", "/opt/cuda", ""):
        monkeypatch.setenv("CUDA_PATH", value)
        assert toolkit.cuda_path_warning() == ""
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    include_folder(tmp_path / "toolkit", 11080)
    assert "CUDA_HOME=" in toolkit.cuda_path_warning()
    assert "is CUDA 11.8" in toolkit.cuda_path_warning()
    (tmp_path / "toolkit" / "version.json").write_text('{"cuda": {"version": "12.4.1"}}', encoding="utf-8")
    assert "is CUDA 12.4" in toolkit.cuda_path_warning()
    (tmp_path / "toolkit" / "version.json").write_text("not json", encoding="utf-8")
    assert "is CUDA 11.8" in toolkit.cuda_path_warning()


def python(code: str, **environment: str) -> str:
    """Run a program in a fresh interpreter and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_cuda_packages_the_way_out_is_named() -> None:
    """Where `cuda` cannot be imported, compiling says what to install, and asking after CUDA_PATH is harmless."""
    program = """
import sys
sys.modules["cuda"] = None
from greenbench.errors import MissingPackageError
from greenbench.gpu.nvrtc import cuda_path_warning, nvrtc_version
try:
    nvrtc_version()
except MissingPackageError as error:
    print(error, cuda_path_warning())
"""
    text = python(program, CUDA_PATH="/usr/local/cuda-12.2")
    assert "needs cuda-core and NVRTC (libnvrtc)" in text
    assert 'pip install "greenbench[cu13]"' in text
    assert "cuda-core[cu13]" in text


def test_without_libnvrtc_the_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuda-core without its extra has no NVRTC; the loader's error becomes one sentence with the command to run."""
    bindings = pytest.importorskip("cuda.bindings.nvrtc")

    def missing() -> None:
        raise RuntimeError("Failure finding libnvrtc.so.13")

    monkeypatch.setattr(bindings, "nvrtcVersion", missing)
    toolkit.nvrtc_version.cache_clear()
    try:
        with pytest.raises(MissingPackageError, match=r'libnvrtc.*pip install "cuda-core\[cu13\]".*"greenbench\[cu13\]"'):
            toolkit.nvrtc_version()
    finally:
        monkeypatch.undo()
        toolkit.nvrtc_version.cache_clear()
