"""The TOML in the comment: nothing breaks its reader, and every key has the line on which it stands."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from greenbench.errors import KernelFileError
from greenbench.frontmatter import Section, extract

DATA = Path(__file__).parent / "data" / "kernels"


@given(st.text("[]{}=\"'#\n.,ab1 -\\", max_size=60))
def test_no_front_matter_breaks_the_reader(body: str) -> None:
    """Any TOML-like text is read or refused by a KernelFileError; where it is read, every key has its line."""
    try:
        matter = extract("k.cu", f"/* greenbench\n{body}\n*/")
    except KernelFileError:
        return
    for path in key_paths(matter.table):
        assert path in matter.lines


def key_paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every key below a TOML value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from key_paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from key_paths(inner, (*path, index))


TRICKY = '''/* greenbench
a = """
b = 1
"""                     # c = 1 { [
d = [                   # a comment with ] and }
    { e = 1, f = "}" },
    { e = 2, g = ['#',
      "\\"]"] },
]
"quoted" = {h = {i = 1}}
[t.u]
v.w = 1
[[x]]
y = 1
[[x]]

y = 2
[x.z]
k = 1979-05-27T07:32:00
*/'''


def test_lines_of_tricky_toml() -> None:
    """Multi-line texts, comments with brackets, nested tables and arrays of tables do not shift any line."""
    matter = extract("k.cu", TRICKY)
    wanted = {
        ("a",): 2, ("d",): 5, ("d", 0, "f"): 6, ("d", 1): 7, ("d", 1, "e"): 7, ("d", 1, "g"): 7, ("d", 1, "g", 1): 8,
        ("quoted", "h", "i"): 10, ("t", "u"): 11, ("t", "u", "v", "w"): 12, ("x", 0, "y"): 14, ("x", 1): 15, ("x", 1, "y"): 17,
    }  # fmt: skip
    assert {path: matter.line_of(path) for path in wanted} == wanted
    assert matter.line_of(("d", 1, "missing", "key")) == 7
    assert matter.line_of(("nowhere",)) == 1
    assert tomllib.loads(TRICKY.partition("\n")[2].rpartition("\n")[0]) == matter.table


@pytest.mark.parametrize("path", sorted([DATA / "triad.cu", *DATA.glob("good/*.cu")]), ids=lambda path: path.stem)
def test_every_key_of_the_good_files_has_its_line(path: Path) -> None:
    """The line that is noted for a key does hold that key."""
    source = path.read_text(encoding="utf-8")
    matter = extract(path.name, source)
    for keys in key_paths(matter.table):
        assert str(keys[-1]) in source.splitlines()[matter.line_of(keys) - 1]


def test_section_names_keys_as_a_user_would() -> None:
    """Paths are written launch.grid and buffers[1].dtype."""
    matter = extract("k.cu", "/* greenbench\n*/")
    assert Section(matter, {}, ("buffers", 1), None).name("dtype") == "buffers[1].dtype"
    assert Section(matter, {}, (), None).name("family") == "family"
