"""The command line of `nsys`: its own options, those of nsys itself, and behind `--` the command that is run under it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from greenbench.cli.options import SectionedCommand, json_option, option
from greenbench.errors import UsageError

COMMANDS = ("sweep", "colocate", "switch")
TIMEOUT_S = "900"
WHAT, WHERE, RUN = "What is recorded", "Where the report goes", "How it is run"
BEHIND = "greenbench.behind"

_OPTIONS = (
    option(
        "--capture",
        WHAT,
        type=click.Choice(("measuring", "all")),
        help="The measuring phase alone, or everything.  [default: measuring for a sweep in one process, else all]",
    ),
    option(
        "-o",
        "--output",
        WHERE,
        metavar="NAME",
        type=click.Path(path_type=Path),
        help="Write NAME.nsys-rep and NAME.sqlite; earlier ones give way.  [default: nsys.* in the folder of the run]",
    ),
    option(
        "--scrub",
        WHERE,
        metavar="COPY.sqlite",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write a copy of the SQLite file too, without environment, host, user and paths.",
    ),
    json_option(WHERE, "Write one JSON object instead of text."),
    option(
        "--nsys",
        RUN,
        metavar="PATH",
        help="The nsys to use.  [default: GREENBENCH_NSYS, PATH, or the copy inside Nsight Compute]",
    ),
    option("--timeout", RUN, metavar="S", default=TIMEOUT_S, help="Seconds after which nsys is ended with all it has started."),
    option("--dry-run", RUN, is_flag=True, help="Print the line that would be run, and why it has each flag; run nothing."),
)


def nsys_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `nsys` to a command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


class UnderTool(SectionedCommand):
    """A command that runs another one: what stands behind `--` is left as it is, and foreign options before it are kept."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.ignore_unknown_options = True
        self.allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the line at the first `--`."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[BEHIND] = args[cut + 1 :]
        return super().parse_args(ctx, args[:cut])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show what stands where."""
        return ["[OPTIONS]", "[OPTIONS OF nsys profile]", "--", f"{'|'.join(COMMANDS)} ..."]


def refuse_modelled(device: object, tool: str) -> None:
    """Raise UsageError for a device on which there is nothing to see."""
    if str(device).startswith("model:"):
        raise UsageError(f"--device {device}: on the modelled device nothing runs, so {tool} sees nothing; use cuda:0")


def split_words(context: click.Context) -> tuple[list[str], list[str]]:
    """Return the options for nsys and the words of the command under it; raises UsageError where there is no such command."""
    own, behind = list(context.args), list(context.meta[BEHIND])
    commands = f"{', '.join(COMMANDS[:-1])} or {COMMANDS[-1]}"
    if not behind:
        example = " ".join(own) if own and own[0] in COMMANDS else "sweep --sms 8,16"
        raise UsageError(f"the command to run stands behind --: greenbench nsys -- {example}")
    if behind[0] not in COMMANDS:
        raise UsageError(f"{behind[0]!r} cannot be run under nsys; behind -- stands {commands}")
    if own and not own[0].startswith("-"):
        raise UsageError(f"{own[0]!r} is no option; before -- stand options, behind it {commands}")
    return own, behind
