"""Which kernels a plan runs, and with which parameters: the `kernels` key of a plan, `--kernels` and `--set`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from greenbench.catalog import Kernel
from greenbench.choices import Setting, parse_param, read_text, split_items
from greenbench.errors import PlanError
from greenbench.expr import did_you_mean
from greenbench.schema import ParamValue
from greenbench.sms import SmsSpec, parse_sms

ALL_KERNELS = "all"
_KERNEL_KEYS = ("name", "params", "sms")


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel of a plan: the parameters that differ from its file's (each a list to sweep over) and sizes of its own."""

    name: str
    params: tuple[tuple[str, tuple[ParamValue, ...]], ...] = ()
    sms: SmsSpec | None = None

    def combinations(self) -> Iterator[dict[str, ParamValue]]:
        """Yield every combination of the parameters' values, the last parameter moving fastest."""
        names = [name for name, _ in self.params]
        for values in itertools.product(*(values for _, values in self.params)):
            yield dict(zip(names, values, strict=True))


def read_sms(value: object, place: str = "--sms") -> SmsSpec:
    """Read sizes from an option's text or from a TOML number, text or list."""
    return parse_sms(",".join(str(each) for each in value) if isinstance(value, list | tuple) else str(value), place)


def read_choices(
    value: object, place: str, kernels: Mapping[str, Kernel], before: Sequence[KernelChoice] = ()
) -> tuple[KernelChoice, ...]:
    """Read `"all"`, names, or tables; a bare name that is among those `before` keeps their parameters."""
    if isinstance(value, str):
        value = split_items(value, place)
    if not isinstance(value, list | tuple) or not value:
        raise PlanError(f'{place}: {value!r} names no kernels; give names such as "triad", tables, or {ALL_KERNELS!r}')
    choices: list[KernelChoice] = []
    names: list[str] = []
    for entry in value:
        if isinstance(entry, Mapping):
            choices.append(_kernel_table(entry, place, kernels))
        elif entry == ALL_KERNELS:
            choices += [KernelChoice(name) for name in sorted(kernels) if not kernels[name].internal]
        else:
            name = _kernel_name(entry, place, kernels)
            if name in names:
                raise PlanError(f"{place}: {name!r} is given twice; give each kernel once")
            names.append(name)
            choices += [choice for choice in before if choice.name == name] or [KernelChoice(name)]
    return tuple(dict.fromkeys(choices))


def _kernel_name(value: object, place: str, kernels: Mapping[str, Kernel]) -> str:
    name = read_text(value, place)
    if name not in kernels:
        known = ", ".join(sorted(each for each in kernels if not kernels[each].internal))
        raise PlanError(f"{place}: there is no kernel {name!r}{did_you_mean(name, kernels)}; kernels are {known}")
    return name


def _kernel_table(table: Mapping[str, object], place: str, kernels: Mapping[str, Kernel]) -> KernelChoice:
    for key in table:
        if key not in _KERNEL_KEYS:
            near = did_you_mean(key, _KERNEL_KEYS)
            raise PlanError(f"{place}.{key} is no key of a kernel in a plan{near}; keys are {', '.join(_KERNEL_KEYS)}")
    name = _kernel_name(table.get("name", ""), f"{place}.name", kernels)
    given = table.get("params", {})
    if not isinstance(given, Mapping):
        raise PlanError(f"{place}.params of {name}: {given!r} is not a table; write params = {{ n = 1024 }}")
    params = []
    for key, value in given.items():
        at = f"{place}.params.{key} of {name}"
        values = tuple(parse_param(each, at) for each in (value if isinstance(value, list) else [value]))
        if not values or len(set(values)) != len(values):
            raise PlanError(f"{at}: {value!r} is empty or has a value twice; give each value once")
        params.append((str(key), values))
    sms = read_sms(table["sms"], f"{place}.sms of {name}") if "sms" in table else None
    choice = KernelChoice(name, tuple(params), sms)
    _try_params(choice, kernels[name], f"{place} of {name}")
    return choice


def _try_params(choice: KernelChoice, kernel: Kernel, place: str) -> None:
    """Refuse parameters that the kernel's file does not have or cannot take."""
    for values in choice.combinations():
        try:
            kernel.merged(values)
        except PlanError as error:
            raise PlanError(f"{place}: {error}") from error


def apply_settings(
    chosen: Sequence[KernelChoice], settings: Sequence[Setting], kernels: Mapping[str, Kernel]
) -> tuple[KernelChoice, ...]:
    """Put `--set` over the kernels that have the parameter; a setting with a kernel's name wins over one without."""
    choices = list(chosen)
    seen: set[tuple[str, str]] = set()
    for setting in sorted(settings, key=lambda each: bool(each.kernel)):
        if (setting.kernel, setting.name) in seen:
            way_out = f"write {setting.name}=VALUE,VALUE to sweep over values"
            raise PlanError(f"--set {setting.text}: {setting.name} is set twice; {way_out}")
        seen.add((setting.kernel, setting.name))
        meant = [index for index, choice in enumerate(choices) if _takes(choice, setting, kernels)]
        if not meant:
            raise _unknown_setting(setting, choices, kernels)
        for index in meant:
            params = {**dict(choices[index].params), setting.name: setting.values}
            choices[index] = replace(choices[index], params=tuple(params.items()))
            _try_params(choices[index], kernels[choices[index].name], f"--set {setting.text}")
    return tuple(dict.fromkeys(choices))


def _takes(choice: KernelChoice, setting: Setting, kernels: Mapping[str, Kernel]) -> bool:
    return setting.kernel in ("", choice.name) and setting.name in dict(kernels[choice.name].params)


def _unknown_setting(setting: Setting, choices: Sequence[KernelChoice], kernels: Mapping[str, Kernel]) -> PlanError:
    chosen = sorted({choice.name for choice in choices})
    if setting.kernel and setting.kernel not in chosen:
        near = did_you_mean(setting.kernel, chosen)
        return PlanError(f"--set {setting.text}: kernel {setting.kernel!r} is not in this plan{near}; it has {', '.join(chosen)}")
    meant = [setting.kernel] if setting.kernel else chosen
    known = sorted({name for kernel in meant for name, _ in kernels[kernel].params})
    near = did_you_mean(setting.name, known)
    has = ", ".join(known) or "no parameters"
    return PlanError(f"--set {setting.text}: none of {', '.join(meant)} has a parameter {setting.name!r}{near}; there is {has}")
