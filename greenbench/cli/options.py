"""What the commands share: options in sections of the help text, their environment variables, and values checked on sight."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from greenbench.errors import UsageError

# Generic since click 8.4 only.
if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:
    TextType = click.ParamType

_DEVICE = re.compile(r"cuda(:[0-9]+)?|model:.+")
# Key of click's `meta` under which an environment stands that is read instead of this process's.
ENVIRONMENT = "greenbench.environment"
# Options that name a program.
PROGRAMS = ("nsys", "ncu")
DEVICE_EXAMPLES = ("cuda:0", "model:h200", "model:h100", "model:a100")


class SectionOption(click.Option):
    """An option with the section of the help text it stands in and, where commands share it, a variable they share too."""

    def __init__(self, *args: Any, section: str = "", shared_variable: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section
        self.shared_variable = shared_variable

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Let the command's own variable (GREENBENCH_SWEEP_DEVICE) win over the one of all commands (GREENBENCH_DEVICE)."""
        environment = ctx.meta.get(ENVIRONMENT, os.environ)
        own = f"{ctx.auto_envvar_prefix}_{(self.name or '').upper()}"
        return environment.get(own) or environment.get(self.shared_variable) or None


@contextmanager
def in_environment(context: click.Context, environment: Mapping[str, str]) -> Iterator[None]:
    """Let the options of contexts below this one be read in another environment than this process has: that of an earlier run."""
    context.meta[ENVIRONMENT] = environment
    try:
        yield
    finally:
        del context.meta[ENVIRONMENT]


class SectionedCommand(click.Command):
    """A command whose help lists its options under the headings that they name, and that takes no empty text for a path."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the line; a path, a program or an argument that is empty, as `"$UNSET"` is, stands for no default."""
        given = self.make_parser(ctx).parse_args(list(args))[0] if args else {}
        rest = super().parse_args(ctx, args)
        for param in self.get_params(ctx):
            value = given.get(param.name or "")
            if _names_something(param) and "" in (value if isinstance(value, list | tuple) else (value,)):
                name = max(param.opts, key=len) if isinstance(param, click.Option) else (param.name or "").upper()
                raise UsageError(f"{name} '' names nothing; give it a value, or leave it out")
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list per section, in the order in which the sections first appear."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", "Help"), []).append(record)
        width = max(len(names) for records in sections.values() for names, _ in records)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl([(names.ljust(width), text) for names, text in records])


def _names_something(param: click.Parameter) -> bool:
    """True for what a path, a program or a plan is named by."""
    return isinstance(param, click.Argument) or isinstance(param.type, click.Path) or param.name in PROGRAMS


class PlannedCommand(SectionedCommand):
    """A command whose help also lists the plans that ship for it."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and the plans below them."""
        from greenbench.errors import GreenbenchError
        from greenbench.plan import plan_summaries

        super().format_options(ctx, formatter)
        with suppress(GreenbenchError), formatter.section("Plans"):
            formatter.write_dl(list(plan_summaries(str(self.name)).items()))


class DeviceType(TextType):
    """`cuda:N` or `model:NAME`; whether it exists is asked later, after everything that can be checked without it."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the device in its full spelling."""
        text = str(value)
        if not _DEVICE.fullmatch(text):
            self.fail(f"{text!r} names no device; write cuda:0, or model:h200 for the modelled one", param, ctx)
        return "cuda:0" if text == "cuda" else text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the usual names."""
        return [CompletionItem(name) for name in DEVICE_EXAMPLES if name.startswith(incomplete)]


class Words(TextType):
    """A word, or several with commas between, handed on as written for the plan to check; `choices` serves completion."""

    name = "text"

    def __init__(self, choices: Sequence[str] | Callable[[click.Context], Sequence[str]]) -> None:
        self._choices = choices if callable(choices) else lambda _: choices

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the item after the last comma."""
        before, comma, last = incomplete.rpartition(",")
        taken = set(before.split(","))
        fitting = (name for name in self._choices(ctx) if name.startswith(last) and name not in taken)
        return [CompletionItem(before + comma + name) for name in fitting]


def kernel_names(ctx: click.Context) -> list[str]:
    """Return the kernels that could be meant, those of --kernels-dir included and greenbench's own probes left out."""
    from greenbench.catalog import library
    from greenbench.errors import GreenbenchError

    try:
        found = library([Path(each) for each in ctx.params.get("kernels_dir") or ()])
        return sorted(name for name, kernel in found.items() if not kernel.internal)
    except GreenbenchError:
        return []  # a broken kernel file is told when it is used, not in the middle of a Tab


def complete_plan(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the plans by name; where none begins like that, files."""
    from greenbench.errors import GreenbenchError
    from greenbench.plan import plan_names

    with suppress(GreenbenchError):
        names = [CompletionItem(name) for name in plan_names(str(ctx.command.name)) if name.startswith(incomplete)]
        if names:
            return names
    return [CompletionItem(incomplete, type="file")]


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(name: str, *more: Any, **settings: Any) -> Decorator:
    """Add an option to a command: its names, then the section of the help text, then click's own settings."""
    *names, section = (name, *more)
    return click.option(*names, cls=SectionOption, section=section, **settings)


def device_option(section: str, help_text: str, default: str | None = "cuda:0") -> Decorator:
    """Add --device."""
    return option(
        "--device",
        section,
        shared_variable="GREENBENCH_DEVICE",
        type=DeviceType(),
        default=default,
        metavar="DEVICE",
        show_default=default is not None,
        help=help_text,
    )


def kernels_dir_option(section: str) -> Decorator:
    """Add --kernels-dir."""
    return option(
        "--kernels-dir",
        section,
        shared_variable="GREENBENCH_KERNELS_DIR",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="DIR",
        help="Folder with kernels of your own, one .cu file each.  May be given more than once.",
    )


def json_option(section: str, help_text: str) -> Decorator:
    """Add --json."""
    return option("--json", section, is_flag=True, help=help_text)
