"""`greenbench kernels`: the library, one kernel in full, or a compile of all of it; only --check needs CUDA packages."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from greenbench.cli.options import SectionedCommand, json_option, kernel_names, kernels_dir_option, option
from greenbench.errors import UsageError
from greenbench.source import limits_of

if TYPE_CHECKING:
    from greenbench.catalog import BufferSpec, Kernel, TensorMap

# One architecture of every generation whose tensor cores or memory path differ.
CHECK_ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
EPILOG = """\b
Examples:
  greenbench kernels
  greenbench kernels triad
  greenbench kernels --check --arch sm_90a
  greenbench kernels my_kernel --kernels-dir my_kernels --check"""


def complete_kernel(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the kernels by name."""
    return [CompletionItem(name) for name in kernel_names(ctx) if name.startswith(incomplete)]


@click.command("kernels", cls=SectionedCommand, epilog=EPILOG)
@click.argument("name", required=False, shell_complete=complete_kernel)
@kernels_dir_option("Options")
@option("--check", "Options", is_flag=True, help="Compile; report registers, shared memory and spills. Needs no GPU.")
@option(
    "--arch",
    "Options",
    metavar="LIST",
    help=f"With --check: sm_90a,… or all.  [default: all, {CHECK_ARCHS[0]} to {CHECK_ARCHS[-1]}]",
)
@json_option("Options", "Write one JSON object instead of text.")
def kernels_command(name: str | None, kernels_dir: tuple[Path, ...], check: bool, arch: str | None, json: bool) -> None:
    """Show the kernel library, or everything about kernel NAME; compile them with --check."""
    if arch is not None and not check:
        raise UsageError(f"--arch {arch} says what to compile for; add --check")
    wanted = "all" if arch is None else arch
    archs = read_archs(wanted)
    from greenbench.catalog import library

    kernels = library(kernels_dir)
    if name is not None:
        kernels = {name: _named(name, kernels)}
    if check:
        from greenbench.cli.compiling import check_kernels

        files = [file for kernel in kernels.values() for file in (kernel, *kernel.versions)]
        check_kernels(files, archs, as_json=json, everything=wanted == "all")
    elif json:
        records = [as_record(kernel) for kernel in kernels.values()]
        click.echo(jsonlib.dumps(records[0] if name is not None else {"kernels": records}, indent=1, ensure_ascii=False))
    elif name is not None:
        click.echo("\n".join(describe(kernels[name])))
    else:
        _list(kernels)


def read_archs(text: str) -> tuple[str, ...]:
    """Read `all` or `sm_80,sm_90a`; each once."""
    from greenbench.kernel import split_arch

    if text == "all":
        return CHECK_ARCHS
    archs = [word.strip() for word in text.split(",")]
    for arch in archs:
        try:
            split_arch(arch)
        except ValueError:
            raise UsageError(
                f"--arch: {arch!r} is no architecture; give all, or names such as {', '.join(CHECK_ARCHS)}"
            ) from None
        if archs.count(arch) > 1:
            raise UsageError(f"--arch: {arch!r} is given twice; give each once")
    return tuple(archs)


def _named(name: str, kernels: Mapping[str, Kernel]) -> Kernel:
    if name not in kernels:
        from greenbench.expr import did_you_mean

        raise UsageError(f"there is no kernel {name!r}{did_you_mean(name, kernels)}; there are {', '.join(kernels)}")
    return kernels[name]


def _list(kernels: Mapping[str, Kernel]) -> None:
    """Write the table of the library; the tool's own probes come last, in one line."""
    from greenbench.cli.listing import write_table

    shown = [kernel for kernel in kernels.values() if not kernel.internal]
    write_table(
        ("kernel", "family", "dtype", "params", "what it measures"),
        [(kernel.name, kernel.family.value, kernel.dtype, param_text(kernel), kernel.summary) for kernel in shown],
        folded=("params", "what it measures"),
    )
    own = [kernel.name for kernel in kernels.values() if kernel.internal]
    if own:
        click.echo(f"greenbench's own probes, never swept unless named: {', '.join(own)}")


def param_text(kernel: Kernel) -> str:
    """Write the parameters with their values: `n=1024, s=3.0`."""
    return ", ".join(f"{name}={value}" for name, value in kernel.params)


def describe(kernel: Kernel) -> Iterator[str]:
    """Yield everything about one kernel, as lines for a person."""
    yield click.style(kernel.label, bold=True) + f"  {kernel.summary}"
    for title, text in _facts(kernel):
        if text:
            yield f"  {title:<11} {text}"
    for title, parts in (
        ("limits", wrap(limits_of(kernel.source), 110)),
        ("sources", kernel.sources),
        ("buffers", [_buffer_text(buffer) for buffer in kernel.buffers]),
        ("variants", [v.name + (f"  cost {v.cost.text}" if v.cost else "") for v in kernel.variants]),
    ):
        for index, part in enumerate(parts):
            yield f"  {title if index == 0 else '':<11} {part}"
    for version in kernel.versions:
        yield ""
        yield from describe(version)


def _buffer_text(buffer: BufferSpec) -> str:
    """Write one buffer: `a        bfloat16 x (m) * (k), in, filled: normal, tensor map in boxes of 64 x BM`."""
    text = f"{buffer.name:<8} {buffer.dtype} x {buffer.count.text}, {buffer.access}, filled: {buffer.fill}"
    if buffer.tensor_map is None:
        return text
    return f"{text}, tensor map in boxes of {' x '.join(size.text for size in buffer.tensor_map.box)}"


def _facts(kernel: Kernel) -> Iterator[tuple[str, str]]:
    launch = kernel.launch
    yield "family", kernel.family.value + (", used by greenbench itself" if kernel.internal else "")
    yield "dtype", kernel.dtype
    yield "entry", f"{kernel.entry}({', '.join(kernel.args)})"
    yield "params", param_text(kernel)
    yield "let", ", ".join(f"{name} = {expr.text}" for name, expr in kernel.let)
    grid = " x ".join(expr.text for expr in launch.grid)
    yield (
        "launch",
        f"grid {grid} CTAs of {launch.block.text} threads"
        + "".join(
            (
                f", clusters of {launch.cluster.text}" if launch.cluster.text != "1" else "",
                f", {launch.smem.text} bytes of dynamic shared memory" if launch.smem else "",
                ", cooperative" if launch.cooperative else "",
                ", each programmatically dependent on the one before" if launch.pdl else "",
            )
        ),
    )
    yield "flops", kernel.flops.text if kernel.flops else ""
    yield "bytes", kernel.bytes.text if kernel.bytes else ""
    yield "reports", f"cycles per {kernel.report.per}, from buffer {kernel.report.buffer}" if kernel.report else ""
    yield "host", f"times {kernel.host}; the kernel is what runs in the thing made, to prove it" if kernel.host else ""
    yield "verified", f"against reference {kernel.verify}" if kernel.verify else "by the probe itself" if kernel.host else "no"
    yield "yardsticks", ", ".join(f"{kernel.name}.{way}" for way in kernel.yardsticks)
    yield "timing", f"{kernel.timing} where --timing is auto" if kernel.timing else ""
    yield "requires", ", ".join(f"{expr.text} = 0" for expr in kernel.require)
    yield "runs on", _runs_on(kernel)
    yield "includes", ", ".join(kernel.headers)
    yield "digest", kernel.digest
    yield "file", str(kernel.path)


def _runs_on(kernel: Kernel) -> str:
    if kernel.arch is not None:
        return f"{kernel.arch} only"
    text = f"compute capability {kernel.min_cc[0]}.{kernel.min_cc[1]} and later" if kernel.min_cc else "every GPU"
    return text + "".join(f"; on {version.arch} {version.path.name} instead" for version in kernel.versions)


def as_record(kernel: Kernel) -> dict[str, Any]:
    """Return everything about one kernel for a machine; expressions are texts."""
    launch = kernel.launch
    return {
        "name": kernel.name,
        "family": kernel.family.value,
        "dtype": kernel.dtype,
        "summary": kernel.summary,
        "internal": kernel.internal,
        "entry": kernel.entry,
        "args": list(kernel.args),
        "params": dict(kernel.params),
        "let": {name: expr.text for name, expr in kernel.let},
        "buffers": [
            {
                "name": b.name,
                "dtype": b.dtype,
                "count": b.count.text,
                "shape": [extent.text for extent in b.shape],
                "fill": b.fill,
                "access": b.access,
                "tensor_map": _map_record(b.tensor_map),
            }
            for b in kernel.buffers
        ],
        "launch": {
            "block": launch.block.text,
            "grid": [expr.text for expr in launch.grid],
            "cluster": launch.cluster.text,
            "smem": launch.smem.text if launch.smem else None,
            "cooperative": launch.cooperative,
            "pdl": launch.pdl,
        },
        "variants": [
            {"name": v.name, "defines": dict(v.defines), "cost": v.cost.text if v.cost else None} for v in kernel.variants
        ],
        "flops": kernel.flops.text if kernel.flops else None,
        "bytes": kernel.bytes.text if kernel.bytes else None,
        "report": {"buffer": kernel.report.buffer, "per": kernel.report.per} if kernel.report else None,
        "host": kernel.host or None,
        "verify": kernel.verify or None,
        "yardstick": kernel.yardstick or None,
        "yardsticks": list(kernel.yardsticks),
        "timing": kernel.timing or None,
        "limits": limits_of(kernel.source) or None,
        "sources": list(kernel.sources),
        "require": [expr.text for expr in kernel.require],
        "min_cc": list(kernel.min_cc) if kernel.min_cc else None,
        "arch": kernel.arch,
        "archs": kernel.archs(CHECK_ARCHS),
        "includes": list(kernel.headers),
        "digest": kernel.digest,
        "file": str(kernel.path),
        "versions": [as_record(version) for version in kernel.versions],
    }


def _map_record(tensor_map: TensorMap | None) -> dict[str, Any] | None:
    if tensor_map is None:
        return None
    return {
        "box": [size.text for size in tensor_map.box],
        "swizzle": tensor_map.swizzle,
        "l2_promotion": tensor_map.l2_promotion,
    }
