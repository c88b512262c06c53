"""What is shipped: wheel and sdist hold what they should and no more, and the installed package stands without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import greenbench

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

pytestmark = pytest.mark.slow


def run(*command: str, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return its stdout; show both streams where it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both archives with the hatchling that is installed, so that no network is needed."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder))
    return folder


@pytest.fixture(scope="module")
def wheel_names(dist: Path) -> set[str]:
    """Names in the wheel."""
    with zipfile.ZipFile(*dist.glob("*.whl")) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked into a folder of its own, as an installer would lay it out."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(*dist.glob("*.whl")) as archive:
        archive.extractall(site)
    return site


def sources(folder: str, *suffixes: str) -> set[str]:
    """Names of the files of these kinds in a folder of the checkout, from the top."""
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and "_data" not in path.relative_to(ROOT).parts
    }


def test_the_version_is_said_once(dist: Path) -> None:
    """Archives carry greenbench.__version__, and the changelog has a section for it."""
    assert {path.name for path in dist.iterdir()} == {
        f"greenbench-{greenbench.__version__}-py3-none-any.whl",
        f"greenbench-{greenbench.__version__}.tar.gz",
    }
    assert f"## {greenbench.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_wheel_holds_everything_that_runs(wheel_names: set[str]) -> None:
    """Every module, device fact, kernel and plan of the checkout is in the wheel; kernels and sweeps under _data."""
    wanted = sources("greenbench", ".py", ".toml", ".typed") | {"greenbench/py.typed"}
    wanted |= {f"greenbench/_data/{name}" for name in sources("kernels", ".cu", ".cuh") | sources("sweeps", ".toml")}
    assert wanted <= wheel_names, sorted(wanted - wheel_names)
    assert any(name.endswith(".cu") for name in wheel_names)
    assert "greenbench/devices.toml" in wheel_names


def test_the_wheel_holds_nothing_else(wheel_names: set[str]) -> None:
    """One top-level package and its metadata: a stray `kernels/` or `tests/` would collide with other packages."""
    assert {name.split("/")[0] for name in wheel_names} == {"greenbench", f"greenbench-{greenbench.__version__}.dist-info"}
    assert "greenbench/_data/__init__.py" not in wheel_names, "would shadow the package in editable installs"


def test_the_sdist_holds_only_what_it_lists(dist: Path) -> None:
    """Neither environments, carried wheels nor results get in, whatever lies in the checkout."""
    with tarfile.open(*dist.glob("*.tar.gz")) as archive:
        members = archive.getmembers()
    tops = {Path(member.name).parts[1] for member in members}
    hatchling_adds = {"PKG-INFO", ".gitignore"}
    listed = {"greenbench", "kernels", "sweeps", "tests", "pyproject.toml", "Makefile"}
    documents = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"}
    assert tops == listed | documents | hatchling_adds
    assert not [member.name for member in members if member.issym() or member.islnk() or "__pycache__" in member.name]


def test_the_installed_package_stands_alone(installed: Path, tmp_path: Path) -> None:
    """From a folder that is not the checkout the installed package finds its own kernels and plans and runs a sweep."""
    environment = {"PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}
    where = run(sys.executable, "-c", "import greenbench; print(greenbench.__file__)", cwd=tmp_path, **environment)
    assert Path(where.strip()).is_relative_to(installed)
    kernels = run(sys.executable, "-m", "greenbench", "kernels", cwd=tmp_path, **environment)
    assert {Path(name).stem for name in sources("kernels", ".cu")} & set(kernels.split())
    sweep = ["sweep", "--device", "model:h200", "--sms", "8,16", "--kernels", "triad", "--out", "run"]
    run(sys.executable, "-m", "greenbench", *sweep, cwd=tmp_path, **environment)
    assert (tmp_path / "run" / "rows.csv").is_file()


def test_the_extras_are_the_documented_ones() -> None:
    """The extras that the README names are there, and no base dependency needs CUDA."""
    assert set(PROJECT["optional-dependencies"]) == {"cu12", "cu13", "trace", "yardstick", "dev", "tools"}
    assert not [name for name in PROJECT["dependencies"] if name.startswith(("cuda", "cupy", "nvidia"))]


def test_demo_says_where_it_ran(tmp_path: Path) -> None:
    """`make demo` names the device in its first and in its last line, and a modelled one as modelled."""
    lines = run("make", "demo", f"PY={sys.executable}", GREENBENCH_SWEEP_OUT=str(tmp_path / "run")).splitlines()
    assert lines[0] == lines[-1]
    assert "measured on the GPU" in lines[0] or "modelled, not measured" in lines[0]
    assert (tmp_path / "run" / "rows.csv").is_file()
