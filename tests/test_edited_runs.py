"""A run.json that somebody edited: whatever stands in it, a reader gives what a run can be, or one sentence with exit 2."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from greenbench.catalog import library
from greenbench.cli.main import cli
from greenbench.cli.request import recorded_plan, resumed_request
from greenbench.cli.session import Session
from greenbench.cli.sweep import sweep_command
from greenbench.errors import UsageError
from greenbench.experiments.sweep import SweepRequest, run_sweep
from greenbench.plan import Plan, load_plan, plan_from_dict
from greenbench.results import read_run
from greenbench.runfiles import read_meta
from tests.staging import Notes

# What an editor, a script or a merge may leave where something else stood; `...` takes the key out.
VALUES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        7,
        2**70,
        0.5,
        1e308,
        "",
        "x",
        "8",
        "all",
        "é\n\ud800",
        [],
        [1],
        ["x"],
        [None],
        [[]],
        {},
        {"a": 1},
        ...,
    ]
)


def places(node: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every value of a JSON tree."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in children:
        yield (*at, key)
        yield from places(value, (*at, key))


def edited(text: str, at: tuple[str | int, ...], value: object) -> str:
    """Return the JSON with another value at that place."""
    tree = node = json.loads(text)
    for key in at[:-1]:
        node = node[key]
    if value is ...:
        del node[at[-1]]
    else:
        node[at[-1]] = value
    return json.dumps(tree)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, its command line included."""
    folder = tmp_path_factory.mktemp("edited") / "run"
    keys = {"kernels": "copy,triad", "sms": "8,full", "rounds": 1, "set": ["n=1048576"], "connections": "1,8", "time_limit_s": 60}
    argv = ("sweep", "--kernels", "copy,triad", "--sms", "8,full", "--device", "model:h200", "--timeout", "30")
    request = SweepRequest(plan=load_plan("quick", keys, library()), device="model:h200", out=folder, argv=argv)
    run_sweep(request, Notes())
    return folder


def resumed(run: Path) -> SweepRequest:
    """Return what `sweep --resume RUN` is about to do."""
    above = click.Context(cli, info_name="greenbench", auto_envvar_prefix="GREENBENCH", obj=Session())
    context = sweep_command.make_context("sweep", ["--resume", str(run)], parent=above)
    return resumed_request(context, context.params, ("sweep", "--resume", str(run)))


def sentence(read: Callable[[], object]) -> str:
    """Return what a UsageError says, an empty text where there is none; anything else is a bug and passes through."""
    try:
        read()
    except UsageError as error:
        return str(error)
    return ""


def checked(plan: Plan) -> None:
    """Prove that what came through is a plan of the right types and ranges, not something that looks like one."""
    assert plan_from_dict(json.loads(json.dumps(plan.as_dict()))) == plan
    assert all(type(number) is int and number >= 1 for number in (plan.rounds, plan.max_rounds, *plan.connections))
    assert plan.rounds <= plan.max_rounds
    assert all(type(choice.name) is str and list(choice.combinations()) for choice in plan.kernels)
    assert plan.time_limit_s is None or plan.time_limit_s > 0


@given(data=st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_edit_is_a_run_or_a_sentence(data: st.DataObject, run: Path) -> None:
    """Property: one value anywhere in run.json is replaced; rows and request come out whole, or UsageError does (exit 2)."""
    path = run / "run.json"
    text = path.read_text(encoding="utf-8")
    at = data.draw(st.sampled_from(list(places(json.loads(text)))))
    try:
        path.write_text(edited(text, at, data.draw(VALUES)), encoding="utf-8")
        refused = sentence(lambda: read_meta(path))
        if refused:
            assert "run.json" in refused
            return
        # A device of other facts may contradict the rows instead.
        if refused := sentence(lambda: read_run(run)):
            assert "run.json" in refused or "rows.csv" in refused
            return
        assert len(read_run(run).rows) >= 1
        if not sentence(lambda: resumed(run)):
            checked(resumed(run).plan)
    finally:
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (("plan", "rounds"), "x", "plan.rounds: 'x' is not of type int"),
        (("plan", "rounds"), 0, "plan.rounds: '0' is no integer from 1"),
        (("plan", "rounds"), 9, "plan.max_rounds: 1 is below the 9 of rounds"),
        (("plan", "max_rounds"), True, "plan.max_rounds: True is not of type int"),
        (("plan", "connections"), [99], "plan.connections: '99' is no integer from 1 to 32"),
        (("plan", "connections"), 1, "plan.connections: 1 is not a list"),
        (("plan", "time_limit_s"), "60", "plan.time_limit_s: '60' is not of type float"),
        (("plan", "sms"), 8, "plan.sms: 8 is not of type str"),
        (("plan", "timing"), "slow", "plan.timing: 'slow' is none of"),
        (("plan", "workqueue"), [], "plan.workqueue: () has a blank item"),
        (("plan", "kernels"), [], "plan.kernels: the plan names no kernels"),
        (("plan", "kernels", 0, "params", "n"), [None], "plan.kernels[0].params.n[0]: None is not of type int"),
        (("plan", "kernels", 0, "params", "n"), [], "plan.kernels[0].params.n: there is no value"),
        (("plan", "seed"), ..., "plan.seed is missing"),
    ],
)
def test_a_wrong_plan_is_named(at: tuple[str | int, ...], value: object, said: str, run: Path) -> None:
    """The sentence holds the run, the key of the plan and the value."""
    path = run / "run.json"
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(edited(text, at, value), encoding="utf-8")
        meta = read_meta(path)
        with pytest.raises(UsageError, match=f"^run {run.name}: the plan in its run.json is not one of ") as caught:
            recorded_plan(meta)
        assert said in str(caught.value)
    finally:
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("argv", [["sweep", "--no-such"], ["sweep", "--help"], ["sweep", "--timeout", "soon"]])
def test_a_command_line_that_began_no_run(argv: list[str], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What stands as the command line of a run is read anew by --resume; one that cannot be meant is exit 2."""
    path = run / "run.json"
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(edited(text, ("argv",), argv), encoding="utf-8")
        with pytest.raises(UsageError):
            resumed(run)
    finally:
        path.write_text(text, encoding="utf-8")
    capsys.readouterr()
