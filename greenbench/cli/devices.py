"""`greenbench devices`: every GPU, what it can do here, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from typing import TYPE_CHECKING

import click

from greenbench.cli.options import SectionedCommand, device_option, json_option
from greenbench.cli.report import driver_text
from greenbench.schema import Backend, DeviceFacts, Evidence

if TYPE_CHECKING:
    from greenbench.worker import DeviceReport, Survey

GIB = 1 << 30


@click.command("devices", cls=SectionedCommand, epilog="\b\nExample:\n  greenbench devices --device model:h200")
@device_option("Options", "Show this device alone: cuda:1, or a modelled one such as model:h200.  [default: every GPU]", None)
@json_option("Options", "Write one JSON object instead of text.")
def devices_command(device: str | None, json: bool) -> None:
    """Show every GPU and what it can do here: SMs, partitions, workqueues, MPS, MIG, clocks, other processes; and why not."""
    from greenbench.worker import survey

    found = survey(device)
    if json:
        click.echo(_as_json(found))
    elif found.devices:
        click.echo("\n\n".join("\n".join(describe(report)) for report in found.devices))
    if found.obstacle is not None:
        raise found.obstacle


def describe(report: DeviceReport) -> Iterator[str]:
    """Yield the lines that tell a person what this device is and can do."""
    facts = report.facts
    if facts.backend is Backend.MODELLED:
        yield click.style(f"MODELLED  {facts.name}", bold=True) + "  arithmetic in place of a GPU"
    else:
        yield click.style(f"cuda:{facts.index}  {facts.name}", bold=True) + f"  {facts.uuid}"
    for name, text in _lines(report):
        if text:
            yield f"  {name:<16}  {text}"


def _lines(report: DeviceReport) -> Iterator[tuple[str, str]]:
    facts = report.facts
    major, minor = facts.compute_capability
    nvrtc = f", NVRTC {facts.nvrtc}" if facts.nvrtc else ""
    yield "driver", driver_text(facts).removeprefix("driver ") + nvrtc
    yield "SMs", f"{facts.sm_count}, compute capability {major}.{minor} (kernels are compiled for {facts.arch})"
    yield "memory", _memory(facts)
    yield "green contexts", _can(report.green)
    yield "partitions", report.sizes_hint
    yield "workqueues", _can(report.workqueue)
    yield "MPS", report.mps or "off"
    yield "MIG", report.mig or "off"
    yield "compute mode", facts.compute_mode
    yield "clocks", _clocks(facts, report.clocks)
    yield "power", _power(facts, report.clocks)
    yield "other processes", _others(report)
    yield "may not measure", report.allowance


def _others(report: DeviceReport) -> str:
    if not report.others:
        return "none seen"
    ids = ", ".join(map(str, report.processes))
    of = "of " if len(report.processes) > report.others else ""
    return f"{report.others} beside greenbench ({of}{ids}); their work disturbs what is measured"


def _can(obstacle: str) -> str:
    return f"no: {obstacle}" if obstacle else "yes"


def _memory(facts: DeviceFacts) -> str:
    parts = [f"{facts.memory_bytes / GIB:.0f} GiB", f"L2 {facts.l2_bytes >> 20} MiB"]
    if facts.mem_bus_bits:
        parts.append(f"bus of {facts.mem_bus_bits} bits")
    if facts.ecc is not None:
        parts.append(f"ECC {'on' if facts.ecc else 'off'}")
    return ", ".join(parts)


def _clocks(facts: DeviceFacts, now: Evidence) -> str:
    return ", ".join(
        f"{name} {' of at most '.join(f'{value:.0f}' for value in (have, most) if value is not None)} MHz"
        for name, have, most in (
            ("SM", now.sm_clock_mhz, facts.max_sm_clock_mhz),
            ("memory", now.mem_clock_mhz, facts.max_mem_clock_mhz),
        )
        if have is not None or most is not None
    )


def _power(facts: DeviceFacts, now: Evidence) -> str:
    parts = [f"{now.power_w:.0f} W"] if now.power_w is not None else []
    if facts.power_limit_w is not None:
        parts.append(f"limit {facts.power_limit_w:.0f} W")
    if now.temperature_c is not None:
        parts.append(f"{now.temperature_c:.0f} °C")
    return ", ".join(parts)


def _as_json(found: Survey) -> str:
    from greenbench.records import to_json

    obstacle = "" if found.obstacle is None else str(found.obstacle)
    return dumps({"devices": to_json(found.devices), "obstacle": obstacle}, indent=1, ensure_ascii=False)
