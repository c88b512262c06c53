"""Writing in place of what is there: files are replaced whole, links followed, and what is no file is written to and stays."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from greenbench.cli.main import cli
from greenbench.errors import OutputError
from greenbench.storage import descriptor_of, put_in_place, replace_file, why_no_file
from tests.nsys_export import Export


def moved(path: Path, data: bytes) -> None:
    """Write by way of a finished file."""
    made = path.with_name("made")
    made.write_bytes(data)
    put_in_place(made, path)
    assert not made.exists()


def copied(path: Path, data: bytes) -> None:
    """The same across file systems, where no file can be moved."""
    with pytest.MonkeyPatch.context() as patch:
        true = Path.replace

        def refuse(self: Path, target: Path) -> Path:
            if self.name == "made":
                raise OSError(18, os.strerror(18))
            return true(self, target)

        patch.setattr(Path, "replace", refuse)
        moved(path, data)


WAYS = pytest.mark.parametrize("write", [replace_file, moved, copied])
Write = Callable[[Path, bytes], None]


@WAYS
def test_files_and_links(tmp_path: Path, write: Write) -> None:
    """A file is replaced, so that who reads the old one goes on; behind links the file is, one that is not there yet is made."""
    file, far = tmp_path / "file", tmp_path / "far"
    far.mkdir()
    file.write_bytes(b"old")
    (tmp_path / "link").symlink_to("second")
    (tmp_path / "second").symlink_to("file")
    (tmp_path / "dangling").symlink_to("far/new")
    with file.open("rb") as reader:
        write(tmp_path / "link", b"new")
        assert reader.read() == b"old"
    write(tmp_path / "dangling", b"made")
    assert (file.read_bytes(), (far / "new").read_bytes()) == (b"new", b"made")
    assert all((tmp_path / name).is_symlink() for name in ("link", "second", "dangling"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dangling", "far", "file", "link", "new", "second"]


@WAYS
def test_a_fifo_is_written_to(tmp_path: Path, write: Write) -> None:
    """A reader at a FIFO gets the bytes, also by a link, and the FIFO stays."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "link").symlink_to("fifo")
    for path in (fifo, tmp_path / "link"):
        got: list[bytes] = []
        reader = threading.Thread(target=lambda got=got: got.append(fifo.read_bytes()), daemon=True)
        reader.start()
        write(path, b"data")
        reader.join(30)
        assert got == [b"data"]
    assert stat.S_ISFIFO(fifo.lstat().st_mode)


@WAYS
def test_a_descriptor_goes_on_where_it_stands(tmp_path: Path, write: Write) -> None:
    """What leads to a descriptor, as /dev/stdout does, appends to what was written by it, be it a file or a pipe."""
    link = tmp_path / "out"
    with (tmp_path / "log").open("wb", buffering=0) as log:
        link.symlink_to(f"/proc/self/fd/{log.fileno()}")
        assert descriptor_of(link) == log.fileno()
        log.write(b"before ")
        write(link, b"data")
        log.write(b" after")
    assert (tmp_path / "log").read_bytes() == b"before data after"
    assert link.is_symlink()


def test_a_device_stays(tmp_path: Path) -> None:
    """A node of a device (that of /dev/null) takes the bytes and stays one."""
    node = tmp_path / "null"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        node.write_bytes(b"")
    except PermissionError:
        pytest.skip("no device can be made or opened here")
    replace_file(node, b"data")
    assert stat.S_ISCHR(node.lstat().st_mode)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    """A folder, links in a circle and a folder that is missing are sentences."""
    (tmp_path / "circle").symlink_to("circle")
    for path in (tmp_path, tmp_path / "circle", tmp_path / "none" / "file"):
        with pytest.raises(OutputError, match="cannot be written"):
            replace_file(path, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["circle"]


def test_what_is_no_file(tmp_path: Path) -> None:
    """Each kind has its name, found without opening it; a file and what is missing have none."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    kinds = {"fifo": "a FIFO", "socket": "a socket", ".": "a folder"}
    assert {name: why_no_file(tmp_path / name) for name in kinds} == {
        name: f"is no file but {kind}" for name, kind in kinds.items()
    }
    assert why_no_file(Path("/dev/null")) == "is no file but a device"
    assert why_no_file(tmp_path / "file") == why_no_file(tmp_path / "none") == ""
    assert why_no_file(Path("\0"))


def test_outputs_of_timeline_into_a_fifo(tmp_path: Path) -> None:
    """--perfetto, --scrub and --plot write into a FIFO and by a link, and leave them what they are."""
    export = Export()
    export.kernel(10_000, 20_000)
    source = export.write(tmp_path / "x.sqlite")
    for option, name, begins in (
        ("--perfetto", "t.json", b"{"),
        ("--scrub", "s.sqlite", b"SQLite"),
        ("--plot", "p.svg", b"<?xml"),
    ):
        os.mkfifo(tmp_path / name)
        (tmp_path / f"link-{name}").symlink_to(name)
        got: list[bytes] = []
        fifo = tmp_path / name
        reader = threading.Thread(target=lambda got=got, fifo=fifo: got.append(fifo.read_bytes()), daemon=True)
        reader.start()
        done = CliRunner().invoke(cli, ["timeline", str(source), option, str(tmp_path / f"link-{name}")])
        assert done.exit_code == 0, done.stderr
        reader.join(30)
        assert got[0].startswith(begins)
        assert fifo.is_fifo()
        assert (tmp_path / f"link-{name}").is_symlink()
