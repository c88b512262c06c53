"""`greenbench completion`: the script with which a shell completes commands, options, kernels and plans."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

RC_FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/greenbench.fish"}


@click.command("completion", epilog="\b\nExample:\n  greenbench completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(tuple(RC_FILES)))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL to stdout: commands, options, kernels and plans complete with Tab."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.BadParameter(f"this click knows no completion for {shell}", param_hint="SHELL")
    root = context.find_root()
    click.echo(kind(root.command, {}, "greenbench", "_GREENBENCH_COMPLETE").source())
    click.echo(f"add these lines to {RC_FILES[shell]} and open a new shell", err=True)
