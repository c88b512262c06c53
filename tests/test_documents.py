"""Documents cannot drift: the commands, options, targets, columns, flags, codes and links that they name exist."""

from __future__ import annotations

import dataclasses
import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest

from greenbench.catalog import Kernel, library
from greenbench.cli.main import cli
from greenbench.errors import ExitCode
from greenbench.schema import BoundRow, Family, Flag, Row, Status, Timing

ROOT = Path(__file__).parent.parent
# The page of each family.
PAGES = {
    Family.GEMM: "docs/gemm.md",
    Family.MEMORY: "docs/memory.md",
    Family.LATENCY: "docs/latency.md",
    Family.PROBE: "docs/bounds.md",
}
NAMES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/kernels.md", "docs/plans.md", "docs/timeline.md"),
    *("docs/isolation.md", "docs/colocate.md", "docs/switch.md", "docs/ncu.md", "docs/nsys.md"),
    *PAGES.values(),
)
HOSTS = {"docs.nvidia.com"}


@cache
def text(name: str) -> str:
    """A document of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def code(name: str, program: str) -> list[list[str]]:
    """Return the words of each command line of `program` in a document: in fenced blocks and between backticks."""
    fences = re.findall(r"^```\w*\n(.*?)^```", text(name), re.M | re.S)
    lines = [line for block in fences for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text(name), flags=re.M | re.S))
    found = [re.split(r"\s#|\s&&\s", line)[0].strip() for line in lines]
    return [shlex.split(line) for line in found if line.startswith(program + " ")]


@cache
def commands() -> dict[str, click.Command]:
    """Every command by name."""
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def options(command: click.Command) -> set[str]:
    """Every spelling of every option of a command."""
    return {spelling for param in command.params for spelling in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}


def halves(words: list[str]) -> list[list[str]]:
    """A line, and where it runs another command behind `--`, that one as a line of its own."""
    if "--" not in words:
        return [words]
    cut = words.index("--")
    return [words[:cut], [words[0], *words[cut + 1 :]]]


def test_every_command_and_option_has_help() -> None:
    """`--help` explains each command and each option in words."""
    for name, command in commands().items():
        assert (command.help or "").strip(), name
        for param in command.params:
            if isinstance(param, click.Option):
                assert (param.help or "").strip(), f"{name} {param.opts}"


def test_readme_names_every_command() -> None:
    """A command that the README does not show would not be found."""
    shown = {words[1] for words in code("README.md", "greenbench")}
    assert set(commands()) <= shown, set(commands()) - shown


@pytest.mark.parametrize("name", NAMES)
def test_shown_command_lines_exist(name: str) -> None:
    """No document claims a command or an option that greenbench does not have."""
    for words in (line for shown in code(name, "greenbench") for line in halves(shown)):
        assert words[1] in commands() or words[1].startswith("-"), words
        if words[1] in commands() and not commands()[words[1]].ignore_unknown_options:
            unknown = {word.partition("=")[0] for word in words[2:] if word.startswith("-")} - options(commands()[words[1]])
            assert not unknown, f"{' '.join(words)}: no option {unknown}"


def test_options_named_alone_exist() -> None:
    """An option that the README names outside a command line belongs to some command."""
    known = set().union(*(options(command) for command in commands().values()))
    foreign = {"--nvtx-capture"}  # of nsys
    named = {word.partition("=")[0] for word in re.findall(r"`(--[a-z][a-z-]*)", text("README.md"))}
    assert named - foreign <= known, named - foreign - known


@pytest.mark.parametrize("name", NAMES)
def test_shown_make_targets_exist(name: str) -> None:
    """`make X` in a document is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.M))
    shown = {words[1] for words in code(name, "make")}
    assert shown <= targets, shown - targets


def test_readme_explains_every_column() -> None:
    """The table of columns is the header of rows.csv, no more and no less."""
    table = text("README.md").split("| columns | say |")[1].split("\n\n")[0]
    columns = [name for cell in re.findall(r"^\| (.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(columns) == sorted(field.name for field in dataclasses.fields(Row))


def test_the_page_on_bounds_explains_every_column() -> None:
    """The table of columns is the header of bounds.csv, no more and no less."""
    table = text("docs/bounds.md").split("| columns | say |")[1].split("\n\n")[0]
    columns = [name for cell in re.findall(r"^\| (.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(columns) == sorted(field.name for field in dataclasses.fields(BoundRow))


@pytest.mark.parametrize(
    "kernel", [kernel for kernel in library().values() if not kernel.internal], ids=lambda kernel: kernel.name
)
def test_every_kernel_is_on_the_page_of_its_family(kernel: Kernel) -> None:
    """A row of a table begins with it; on the page of the memory-bound kernels with the bytes that it counts."""
    name = PAGES[kernel.family]
    row = re.search(rf"^\| (?:`\w+`, )*`{kernel.name}`.*$", text(name), re.M)
    assert row is not None, f"{name} does not explain {kernel.name}"
    if kernel.family is Family.MEMORY and kernel.bytes is not None:
        assert f"`{kernel.bytes.text}`" in row.group()


def test_the_readme_leads_to_every_page() -> None:
    """An index that leaves a page out hides it."""
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages == {target for target in re.findall(r"\]\((docs/[^)#]+)", text("README.md")) if target.endswith(".md")}


def test_readme_explains_every_word() -> None:
    """Statuses, flags and ways of timing are all explained."""
    words = [*Status, *Flag, *(word.partition("-")[0] for word in Timing if word is not Timing.AUTO)]
    missing = [word for word in words if f"`{word}`" not in text("README.md")]
    assert not missing


def test_readme_lists_the_exit_codes() -> None:
    """The table of exit codes holds the codes of ExitCode; those of `check` are named below it."""
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", text("README.md"), re.M)}
    assert listed | {ExitCode.REGRESSION, ExitCode.INCONCLUSIVE} == set(ExitCode)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    """Relative links are files of the checkout; other addresses are on the short list of hosts."""
    for target in re.findall(r"\]\(([^)#\s]+)", text(name)):
        if "://" in target:
            assert target.split("/")[2] in HOSTS, target
        else:
            assert ((ROOT / name).parent / target).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_no_paths_of_a_machine(name: str) -> None:
    """A document holds no absolute path: it would be one of somebody's machine."""
    paths = re.findall(r"(?<![\w.:/)\]`>])/[a-z][\w.-]*/[\w./-]*", text(name))
    assert not paths, paths
