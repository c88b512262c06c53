"""What a wrong command line gets: exit 2 before anything else happens, one sentence that quotes the item and says the way out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from greenbench.cli.main import COMMANDS, cli

ROOT = Path(__file__).parent.parent


def environment(**more: str) -> dict[str, str]:
    """The environment of a child that finds this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **more}


def greenbench(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "greenbench", *arguments],
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def invoke(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, arguments)


def refused(result: Result, *words: str) -> None:
    """Exit 2, nothing on stdout, one line on stderr with these words in it, and no traceback."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("greenbench: error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to start a worker, where the device is first touched, is an error of the test."""

    def touched(*_: object, **__: object) -> None:
        raise RuntimeError("a worker was started for a command line that is wrong")

    monkeypatch.setattr("greenbench.worker.process.Worker.start", touched)


@pytest.mark.parametrize(
    ("sms", "quoted"),
    [
        ("0", "'0'"),
        ("8,,16", "'8,,16'"),
        ("8.0", "'8.0'"),
        ("-8", "'-8'"),
        ("16,16", "'16'"),
        ("", "''"),
        ("eight", "'eight'"),
        ("8:132", "'8:132'"),
        ("8:4:2", "'8:4:2'"),
        ("8,-16", "'-16'"),
    ],
)
@pytest.mark.parametrize("device", ["cuda:0", "model:h200"])
def test_senseless_sizes(sms: str, quoted: str, device: str) -> None:
    """H05: each senseless count is quoted and the possible ones are named, whatever the device."""
    refused(invoke("sweep", "--sms", sms, "--device", device), "--sms", quoted)


def test_sizes_with_an_equals_sign() -> None:
    """`--sms=-8` and `--sms -8` are the same mistake, and neither is taken for an option called -8."""
    assert invoke("sweep", "--sms=-8").stderr == invoke("sweep", "--sms", "-8").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workqueue", "fair"], ["--workqueue", "'fair'", "device_ctx", "balanced"]),
        (["--workqueue", "balanced,green_ctx_balanced"], ["--workqueue", "'green_ctx_balanced'"]),
        (["--concurrency-limit", "0", "--workqueue", "balanced"], ["--concurrency-limit", "'0'"]),
        (["--concurrency-limit", "4"], ["--concurrency-limit", "--workqueue"]),
        (["--connections", "33"], ["--connections", "'33'", "32"]),
        (["--granularity", "0"], ["--granularity", "'0'"]),
        (["--timing", "stedy"], ["--timing", "'stedy'", "steady"]),
        (["--flush", "dirty"], ["--flush", "cold"]),
        (["--rounds", "0"], ["--rounds", "'0'"]),
        (["--rounds", "6", "--max-rounds", "3"], ["--max-rounds", "3", "6"]),
        (["--seed", "x"], ["--seed", "'x'"]),
        (["--timeout", "0"], ["--timeout", "'0'"]),
        (["--timeout", "-1"], ["--timeout", "'-1'"]),
        (["--timeout", "nan"], ["--timeout", "'nan'"]),
        (["--time-limit", "soon"], ["--time-limit", "'soon'"]),
        (["--profile", "0"], ["--profile", "'0'"]),
        (["--kernels", "no_such_kernel"], ["--kernels", "'no_such_kernel'", "triad"]),
        (["--kernels", "triad,,copy"], ["--kernels", "blank"]),
        (["--kernels", "triad", "--set", "n"], ["--set", "'n'", "NAME=VALUE"]),
        (["--kernels", "triad", "--set", "n=x"], ["--set", "'x'"]),
        (["--kernels", "triad", "--set", "zz=1"], ["--set", "'zz'"]),
        (["no_such_plan"], ["'no_such_plan'", "quick"]),
        (["/nowhere/plan.toml"], ["/nowhere/plan.toml"]),
        (["--kernels-dir", "/nowhere"], ["/nowhere"]),
        (["--device", "gpu0"], ["--device", "'gpu0'", "cuda:0"]),
        (["--device", "cuda:-1"], ["--device", "'cuda:-1'"]),
        (["--resume", "/nowhere"], ["/nowhere"]),
        (["quick", "ci"], ["ci"]),
        (["--no-such-option"], ["--no-such-option", "sweep --help"]),
        (["--sms"], ["--sms"]),
    ],
    ids=" ".join,
)
def test_wrong_options_of_sweep(arguments: list[str], words: list[str]) -> None:
    """Order of checks: every option and the plan are checked before a device is looked for."""
    refused(invoke("sweep", *arguments), *words)


def test_wrong_options_in_a_process_without_driver() -> None:
    """The same in a fresh process: exit 2, one line on stderr, nothing on stdout."""
    done = greenbench("sweep", "--sms", "8,,16")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("greenbench: error: --sms: '8,,16' has a blank item; ")
    assert done.stderr.count("\n") == 1


def test_a_variable_is_checked_like_the_option() -> None:
    """GREENBENCH_SWEEP_SMS stands for --sms, and its mistakes are told the same way."""
    assert greenbench("sweep", GREENBENCH_SWEEP_SMS="16,16").stderr == greenbench("sweep", "--sms", "16,16").stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GREENBENCH_SWEEP_DEVICE", "gpu0"),
        ("GREENBENCH_DEVICE", "gpu0"),
        ("GREENBENCH_SWEEP_ROUNDS", "0"),
        ("GREENBENCH_SWEEP_SET", "zz=1"),
    ],
)
def test_every_option_has_a_variable(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of a command by its name; --device also for all commands at once."""
    monkeypatch.setenv(variable, value)
    refused(invoke("sweep"), value.rpartition("=")[0] or value)


def test_the_variable_of_the_command_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """GREENBENCH_SWEEP_DEVICE is closer to the command than GREENBENCH_DEVICE, and an option is closer than both."""
    monkeypatch.setenv("GREENBENCH_DEVICE", "general")
    monkeypatch.setenv("GREENBENCH_SWEEP_DEVICE", "special")
    refused(invoke("sweep"), "'special'")
    refused(invoke("sweep", "--device", "spoken"), "'spoken'")
    refused(invoke("devices"), "'general'")


def test_unknown_command() -> None:
    """The commands that exist are named."""
    refused(invoke("swep"), "'swep'", *COMMANDS)


def test_no_arguments_show_help() -> None:
    """`greenbench` alone is no command: help, and exit 2."""
    result = invoke()
    assert result.exit_code == 2
    assert "Commands:" in result.stderr


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_has_help(command: str) -> None:
    """--help and -h work everywhere, exit 0, on stdout, and no line of the text is empty of meaning."""
    arguments = [command] if command else []
    result = invoke(*arguments, "--help")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: greenbench{' ' if command else ''}{command}")
    assert invoke(*arguments, "-h").stdout == result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lines_agree_with_the_commands(command: str) -> None:
    """The line that the table keeps for --help belongs to a command that can be imported, under its own name."""
    imported = cli.get_command(None, command)  # type: ignore[arg-type]
    assert imported is not None
    assert imported.name == command
    assert imported.help


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(command: str) -> None:
    """No option without a help text, and none whose variable would not be GREENBENCH_COMMAND_OPTION."""
    imported = cli.get_command(None, command)  # type: ignore[arg-type]
    assert imported is not None
    for param in imported.params:
        if param.param_type_name == "option":
            assert getattr(param, "help", ""), param.name
            assert param.name in {name.lstrip("-").replace("-", "_") for name in param.opts}, param.name


def test_version() -> None:
    """--version prints name and version on stdout."""
    from greenbench import __version__

    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"greenbench {__version__}\n")


def test_the_help_of_sweep_lists_the_plans() -> None:
    """Every plan that ships, by its name and with its summary."""
    from greenbench.plan import plan_summaries

    said = " ".join(invoke("sweep", "--help").stdout.partition("Plans:")[2].split())
    for name, summary in plan_summaries().items():
        assert f"{name} {summary}" in said


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_error(closed: int) -> None:
    """Started with stdout or stderr closed, a command does its work and ends with its own code, never with 1."""
    command = f"exec {sys.executable} -m greenbench kernels triad {closed}>&-"
    done = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr + done.stdout
