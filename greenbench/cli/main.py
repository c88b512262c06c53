"""Entry point: a click group that imports a command only when it is called, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import MutableMapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from greenbench import __version__
from greenbench.cli.session import Session, raised_at, write_traceback
from greenbench.cli.terminal import discard, reader_is_gone, wants_colour
from greenbench.errors import ExitCode, GreenbenchError, InterruptedRunError

PROGRAM = "greenbench"
COMPLETE_VAR = "_GREENBENCH_COMPLETE"

# Name -> (module:attribute, help line). The line is kept here so that `--help` need not import the command.
COMMANDS = {
    "devices": ("greenbench.cli.devices:devices_command", "Show every GPU, what it can do here, and why not."),
    "kernels": ("greenbench.cli.kernels:kernels_command", "Show the kernel library; compile it with --check."),
    "sweep": ("greenbench.cli.sweep:sweep_command", "Run kernels on partitions of 8, 16, 24, … SMs."),
    "colocate": ("greenbench.cli.colocate:colocate_command", "Run decode beside prefill: which isolation holds."),
    "switch": ("greenbench.cli.switch:switch_command", "Run 1 to 8 processes on one GPU: what time-slicing costs."),
    "nsys": ("greenbench.cli.nsys:nsys_command", "Run one of these under Nsight Systems, and read its timeline."),
    "plot": ("greenbench.cli.plot:plot_command", "Draw the figures of finished runs."),
    "ncu": ("greenbench.cli.ncu:ncu_command", "Run one point under Nsight Compute, related to its partition."),
    "timeline": ("greenbench.cli.timeline:timeline_command", "Read a capture of Nsight Systems: overlap, strays, gaps."),
    "completion": ("greenbench.cli.completion:completion_command", "Print the completion script of a shell."),
}

EPILOG = """\b
Examples:
  greenbench devices
  greenbench sweep --sms 8,16,24,32
  greenbench sweep scaling --sms 8:132:8,full --kernels triad
  greenbench sweep --device model:h200 --sms 8,16,24,32    (no GPU needed)

Paths of results go to stdout, everything else to stderr. Every option can be set by a variable:
GREENBENCH_SWEEP_ROUNDS=8, or GREENBENCH_DEVICE=cuda:1 for all commands that take --device."""

# What the disk or its owner refuses; anything else that the operating system says is a bug of ours.
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})


class CommandTable(click.Group):
    """A group whose commands are names in COMMANDS, imported on first use, and whose `main` ends the process as agreed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table: the order in which a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name, or return None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is no click command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where the word on the line is none."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"no command {args[0]!r}; commands are {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands from COMMANDS, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run the command line `args` and exit; click's own `main` would answer a closed pipe with 1."""
        _stand_in_for_closed_streams()
        arguments = list(sys.argv[1:] if args is None else args)
        _complete(self, extra, complete_var or COMPLETE_VAR)
        session = extra.pop("obj", None) or Session()
        session.arguments = tuple(arguments)
        if not wants_colour(sys.stdout):
            extra.setdefault("color", False)
        code = _run(self, arguments, session, extra)
        _hang_up()
        sys.exit(int(code))


def _complete(group: click.Group, extra: MutableMapping[str, Any], variable: str) -> None:
    """Answer the shell and exit where it is the shell that asks (its completion script sets the variable)."""
    instruction = os.environ.get(variable)
    if instruction:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(group, dict(extra), PROGRAM, variable, instruction))


def _run(group: click.Group, arguments: list[str], session: Session, extra: MutableMapping[str, Any]) -> int:
    """Run one command and return its exit code, whatever happens on the way."""
    try:
        if not arguments:
            click.echo(group.make_context(PROGRAM, [], resilient_parsing=True, **extra).get_help(), err=True)
            return ExitCode.USAGE
        with group.make_context(PROGRAM, arguments, obj=session, **extra) as context:
            result = group.invoke(context)
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else ExitCode.DONE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _usage(error)
    except InterruptedRunError as stop:
        _say(str(stop), kind="")
        return stop.exit_code
    except GreenbenchError as error:
        _say(str(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say(_how_to_resume(session), kind="")
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last net: what ends here is a bug, and its traceback goes to a file
        return _unforeseen(error, session)


def _usage(error: click.ClickException) -> int:
    """Say in one line what is wrong with the command line."""
    context = getattr(error, "ctx", None)
    where = f" (see {context.command_path} --help)" if context is not None else ""
    _say(_as_house_style(error) + where)
    return ExitCode.USAGE


def _as_house_style(error: click.ClickException) -> str:
    """Put the option first and the sentence after it, as our own errors do, instead of "Invalid value for"."""
    if type(error) is click.BadParameter and error.param is not None and error.param_hint is None:
        name = error.param.opts[-1] if isinstance(error.param, click.Option) else str(error.param.human_readable_name)
        return f"{name}: {error.message}".rstrip(".")
    text = error.format_message().rstrip(".")
    return text[:1].lower() + text[1:]


def _how_to_resume(session: Session) -> str:
    if session.folder is None:
        return "interrupted; nothing had been measured"
    if session.finished:
        return f"interrupted; the run in {session.folder} is complete, and '{PROGRAM} plot {session.folder}' draws its figures"
    return (
        f"interrupted; everything measured so far is in {session.folder}, "
        f"and '{PROGRAM} {session.command} --resume {session.folder}' continues"
    )


def _unforeseen(error: Exception, session: Session) -> int:
    """Tell a stream that nobody reads and a full disk from a bug of ours."""
    if isinstance(error, BrokenPipeError) and (reader_is_gone(sys.stdout) or reader_is_gone(sys.stderr)):
        return session.exit_code
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        place = error.filename or session.folder
        way_out = "make room or name another folder with --out" if place else "make room where it leads to, or lead it elsewhere"
        _say(f"cannot write {place or 'standard output'}: {error.strerror}; {way_out}")
        return ExitCode.INCOMPLETE
    path = write_traceback(error, session.folder)
    home = f"the traceback is in {path}" if path else f"raised at {raised_at(error)}, no file could take the traceback"
    _say(f"{type(error).__name__}: {error}; this is a bug of {PROGRAM} {__version__}, {home}", kind="internal error")
    return ExitCode.INTERNAL


def _say(text: str, kind: str = "error") -> None:
    """Write one line to stderr; a closed stderr is nobody's error."""
    head = click.style(f"{PROGRAM}: {kind}:", fg="red", bold=True) if kind else f"{PROGRAM}:"
    try:
        click.echo(f"{head} {' '.join(text.split())}", err=True, color=wants_colour(sys.stderr))
    except OSError:
        return


def _hang_up() -> None:
    """Flush both streams; one without a reader, or on a full disk, is pointed at the null device first."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            discard(stream)


@click.group(
    cls=CommandTable,
    no_args_is_help=False,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GREENBENCH", "max_content_width": 110},
)
@click.version_option(__version__, "--version", prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Run CUDA kernels on a chosen number of SMs (green contexts) and prove what was measured."""


def _stand_in_for_closed_streams() -> None:
    """Let a process that was started with stdout or stderr closed write into nothing; Python leaves None there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - lives as long as the process


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    cli.main()


if __name__ == "__main__":
    main()
