"""Reads one `.cu` file into a Kernel: front matter, signature and expressions are checked here, without a compiler or a GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from greenbench.bufferspec import DTYPE_BYTES, BufferSpec
from greenbench.errors import KernelFileError
from greenbench.expr import LIMIT, Expr, Number, did_you_mean
from greenbench.frontmatter import Section, extract
from greenbench.kernel import (
    BUILT_IN_NAMES,
    Kernel,
    Launch,
    Report,
    Variant,
    digest_of,
    integers,
    split_arch,
    variant_name,
)
from greenbench.operands import read_buffers
from greenbench.references import NEEDS
from greenbench.schema import Family, HostAction, Timing
from greenbench.source import (
    Definition,
    Kind,
    definitions,
    foreign_headers,
    global_names,
    includes,
    own_headers,
    read_source,
    strip_comments,
)
from greenbench.yardsticks import VENDORS, misfit

FAMILIES = tuple(family.value for family in Family)
HOST_ACTIONS = tuple(action.value for action in HostAction)
# What `auto` may be told to be for a kernel.
TIMINGS = (Timing.STEADY.value, Timing.HOT.value, Timing.GRAPH.value)
# The types that a fill can be made in, every type where a kind is not named; a test holds them to `fills`, which needs numpy.
FILL_DTYPES = {
    "normal": ("float64", "float32", "tf32", "float16", "bfloat16", "e4m3"),
    "integer": ("float64", "float32", "tf32", "float16", "bfloat16", "e4m3", "int32", "int64"),
    "cycle": ("int64", "uint64"),
    "permutation": ("int32", "uint32", "int64", "uint64"),
}

TOP_KEYS = (
    *("family", "summary", "entry", "args", "verify", "min_cc", "arch", "dtype", "buffers", "yardstick"),
    *("internal", "include", "defines", "local_ok", "params", "let", "launch", "variant", "work", "report", "require", "host"),
    *("timing", "sources"),
)
LAUNCH_KEYS = ("block", "grid", "cluster", "smem", "cooperative", "pdl")

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def read_kernel(path: Path, prelude: str) -> Kernel:
    """Read and check one kernel file; `prelude` is the text that is put in front of it when it is compiled."""
    name, named_arch = _named(path)
    source = read_source(path)
    top = Section(matter := extract(path.name, source), matter.table, (), TOP_KEYS)
    code = strip_comments(source)
    include = _include(top, path)
    own = own_headers(path, code, include)
    params = _params(top)
    defines = _defines(top, dict(params))
    macros = _variant_macros(top, [*dict(params), *dict(defines)])
    names = {*BUILT_IN_NAMES, *dict(params), *dict(integers(defines)), *dict((macros or [()])[0])}
    let = _let(top, names)
    names |= dict(let).keys()
    buffers = read_buffers(top, names)
    kernel = Kernel(
        name=name,
        path=path,
        source=source,
        prelude=prelude,
        digest=digest_of(prelude, source, *own),
        family=Family(_required_choice(top, "family", FAMILIES)),
        summary=_required(top, "summary", "say in one line what the kernel measures"),
        entry=_required(top, "entry", 'name the extern "C" __global__ function'),
        args=top.texts("args"),
        verify=_verify(top),
        min_cc=_min_cc(top),
        arch=_arch(top, named_arch),
        dtype=top.choice("dtype", tuple(DTYPE_BYTES), buffers[0].dtype if buffers else ""),
        buffers=buffers,
        params=params,
        let=let,
        launch=_launch(top, names, maps=any(buffer.tensor_map for buffer in buffers)),
        variants=_variants(top, macros, names),
        flops=top.section("work", ("flops", "bytes")).expr("flops", names, reals=True),
        bytes=top.section("work", ("flops", "bytes")).expr("bytes", names, reals=True),
        report=_report(top, buffers, params, names),
        yardstick=top.choice("yardstick", VENDORS),
        internal=top.flag("internal"),
        include=include,
        headers=tuple(header for header, _ in includes(code)),
        toolkit_headers=foreign_headers(path, code, include),
        defines=defines,
        local_ok=top.flag("local_ok"),
        host=top.choice("host", HOST_ACTIONS),
        require=_require(top, {*dict(params), *dict(integers(defines))}),
        timing=top.choice("timing", TIMINGS),
        sources=top.texts("sources"),
    )
    _check_args(top, kernel)
    _check_fills(top, kernel)
    _check_reference(top, kernel)
    if problem := misfit(kernel.yardstick, kernel.verify, [buffer.dtype for buffer in kernel.operands], _integers(kernel)):
        raise top.error("yardstick", f"yardstick is {kernel.yardstick!r}, but {problem}; leave out yardstick")
    _check_signature(top, kernel, code)
    if problem := kernel.unmet(dict(params)):
        raise top.error("require", f"the file's own params are refused: {problem}")
    if problem := kernel.trial_problem(dict(params)):
        raise KernelFileError(problem + kernel.too_low(dict(params)))
    return kernel


def _named(path: Path) -> tuple[str, str]:
    """Return the kernel's name, and the architecture that NAME.ARCH.cu is for."""
    name, _, arch = path.stem.partition(".")
    try:
        specific = not arch or bool(split_arch(arch)[2])
    except ValueError:
        specific = False
    if not _FILE_NAME.fullmatch(name) or not specific:
        raise KernelFileError(
            f"{path}: a kernel is called like its file, and a name holds letters, digits, _ and - only; "
            "its version for one architecture is NAME.ARCH.cu, like gemm.sm_90a.cu"
        )
    return name, arch


def _required(top: Section, key: str, advice: str) -> str:
    top.need(key, advice)
    text = top.text(key).strip()
    if not text:
        raise top.error(key, f"{key} is empty; {advice}")
    return text


def _required_choice(top: Section, key: str, allowed: Collection[str]) -> str:
    top.need(key, f"allowed are {', '.join(allowed)}")
    return top.choice(key, allowed)


def _params(top: Section) -> tuple[tuple[str, Number], ...]:
    section = top.section("params", None)
    params: list[tuple[str, Number]] = []
    for name in section:
        section.new_name(name, name)
        value = section.raw(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) > LIMIT:
            raise section.error(name, f"params.{name} is {value!r}; it must be an integer of 64 bits or a real number")
        params.append((name, value))
    return tuple(params)


def _defines(top: Section, params: Collection[str]) -> tuple[tuple[str, str], ...]:
    section = top.section("defines", None)
    defines = []
    for name in section:
        value = section.raw(name)
        section.new_name(name, name, params)
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise section.error(name, f"defines.{name} is {value!r}; it must be an integer or a text")
        defines.append((name, str(value)))
    return tuple(defines)


def _let(top: Section, names: Collection[str]) -> tuple[tuple[str, Expr], ...]:
    section = top.section("let", None)
    known = set(names)
    let: list[tuple[str, Expr]] = []
    for name in section:
        section.new_name(name, name, known)
        let.append((name, section.parse(name, section.raw(name), known)))
        known.add(name)
    return tuple(let)


def _launch(top: Section, names: Collection[str], *, maps: bool) -> Launch:
    top.need("launch", 'add [launch] with block = 256 and grid = "ceil_div(n, 256)"')
    section = top.section("launch", LAUNCH_KEYS)
    section.need("block", "give the threads per CTA, e.g. block = 256")
    section.need("grid", 'give the number of CTAs, e.g. grid = "ceil_div(n, 256)"')
    block, grid = section.expr("block", names), section.raw("grid")
    sizes = grid if isinstance(grid, list) else [grid]
    if not 1 <= len(sizes) <= 3 or block is None:
        raise section.error("grid", f"launch.grid has {len(sizes)} dimensions; give one to three")
    if maps and section.flag("cooperative"):
        raise section.error("cooperative", "a kernel with tensor maps cannot be cooperative yet; leave out one of the two")
    return Launch(
        block=block,
        grid=tuple(section.parse("grid", size, names) for size in sizes),
        cluster=section.parse("cluster", section.raw("cluster") if "cluster" in section else 1, names),
        smem=section.expr("smem", names),
        cooperative=section.flag("cooperative"),
        pdl=section.flag("pdl"),
    )


def _variant_macros(top: Section, taken: Collection[str]) -> list[tuple[tuple[str, int], ...]]:
    """Return the macros of every variant, before expressions can be read that use them."""
    result: list[tuple[tuple[str, int], ...]] = []
    for section in top.sections("variant", ("defines", "cost")):
        section.need("defines", "give the macros of this variant, e.g. defines = { BM = 128 }")
        table = section.section("defines", None)
        macros: list[tuple[str, int]] = []
        for macro in table:
            value = table.raw(macro)
            table.new_name(macro, macro, taken)
            if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LIMIT:
                raise table.error(macro, f"{table.name(macro)} is {value!r}; it must be an integer")
            macros.append((macro, value))
        if not macros:
            raise section.error("defines", f"{section.name('defines')} is empty; give at least one macro")
        if result and {macro for macro, _ in macros} != {macro for macro, _ in result[0]}:
            wanted = ", ".join(macro for macro, _ in result[0])
            raise section.error("defines", f"{section.name('defines')} must set the same macros as the first variant: {wanted}")
        result.append(tuple(macros))
    return result


def _variants(top: Section, defines: Sequence[tuple[tuple[str, int], ...]], names: Collection[str]) -> tuple[Variant, ...]:
    variants = []
    for section, macros in zip(top.sections("variant", ("defines", "cost")), defines, strict=True):
        if len(defines) > 1:
            section.need("cost", "the variant of lowest cost is used, so each of several needs one")
        variants.append(Variant(variant_name(macros), macros, section.expr("cost", names)))
    return tuple(variants)


def _report(
    top: Section, buffers: Sequence[BufferSpec], params: Sequence[tuple[str, Number]], names: Collection[str]
) -> Report | None:
    if "report" not in top:
        return None
    section = top.section("report", ("buffer", "per", "fact"))
    buffer = _required_choice(section, "buffer", [each.name for each in buffers if each.access != "scratch"])
    section.need("per", 'name the number of operations that the cycles are for, e.g. per = "hops"')
    report = Report(buffer, section.choice("per", sorted(names)), section.text("fact"))
    try:
        report.fact_for(dict(params))
    except (LookupError, ValueError, AttributeError) as error:
        raise section.error("fact", f"report.fact is {report.fact!r}; braces hold names of [params] ({error})") from None
    return report


def _verify(top: Section) -> str:
    name = top.text("verify")
    if name in ("", "none"):
        return ""
    if name not in NEEDS:
        near = did_you_mean(name, NEEDS)
        raise top.error("verify", f"verify is {name!r}{near}; there are references for {', '.join(sorted(NEEDS))}")
    return name


def _check_reference(top: Section, kernel: Kernel) -> None:
    """The reference finds its buffers and params in the kernel; what a kernel keeps for itself (scratch) it does not see."""
    if not kernel.verify:
        return
    needs, params = NEEDS[kernel.verify], dict(kernel.params)
    operands = [buffer.name for buffer in kernel.operands]
    integers = _integers(kernel)
    wanted = ("a buffer", needs.buffers, operands), ("an integer", needs.integers, integers), ("a real", needs.reals, [*params])
    for what, names, there in wanted:
        for name in names.split():
            if name not in there:
                problem = f"whose reference needs {what} {name!r}; the kernel has {', '.join(there) or 'none'}"
                raise top.error("verify", f"verify is {kernel.verify!r}, {problem}")


def _integers(kernel: Kernel) -> list[str]:
    return [name for name, value in kernel.params if isinstance(value, int)]


def _check_fills(top: Section, kernel: Kernel) -> None:
    for index, buffer in enumerate(kernel.buffers):
        dtypes = FILL_DTYPES.get(buffer.fill, (buffer.dtype,))
        if buffer.dtype not in dtypes:
            problem = f"fill {buffer.fill!r} is made in {', '.join(dtypes)}, and the buffer's dtype is {buffer.dtype}"
            raise top.matter.error(("buffers", index, "fill"), f"buffers[{index}].{problem}; take another of the two")


def _include(top: Section, path: Path) -> tuple[str, ...]:
    """Return the folders of headers, every one of which is there."""
    for folder in (folders := top.texts("include")):
        if not (path.parent / folder).is_dir():
            raise top.error("include", f"include names {folder!r}, and there is no folder {path.parent / folder}")
    return folders


def _min_cc(top: Section) -> tuple[int, int] | None:
    value = top.raw("min_cc")
    if value is None:
        return None
    match value:
        case [int() as major, int() as minor] if 5 <= major < 100 and 0 <= minor < 10:
            return major, minor
    raise top.error("min_cc", f"min_cc is {value!r}; it must be a compute capability like [8, 0]")


def _arch(top: Section, named: str) -> str | None:
    if named and top.text("arch") != named:
        raise top.error("arch", f'arch is {top.text("arch")!r}, but the file is called after {named}; write arch = "{named}"')
    if "arch" not in top:
        return None
    arch = top.text("arch")
    try:
        suffix = split_arch(arch)[2]
    except ValueError:
        suffix = ""
    if not suffix:
        raise top.error("arch", f'arch is {arch!r}; it is for code of one architecture, like "sm_90a"; else give min_cc = [9, 0]')
    if "min_cc" in top:
        raise top.error("arch", "arch and min_cc exclude each other; arch already names the compute capability")
    return arch


def _require(top: Section, names: Collection[str]) -> tuple[Expr, ...]:
    """Return the conditions on params: expressions that must be 0, such as n % 8."""
    return tuple(top.parse("require", text, names) for text in top.texts("require"))


def _check_args(top: Section, kernel: Kernel) -> None:
    """Every argument is a buffer or a parameter, and every buffer is an argument."""
    buffers = [buffer.name for buffer in kernel.buffers]
    known = [*buffers, *(name for name, _ in kernel.params)]
    for name in kernel.args:
        if name not in known:
            near = did_you_mean(name, known)
            choices = ", ".join(known) or "none"
            raise top.error("args", f"args names {name!r}, neither a parameter nor a buffer{near}; there are {choices}")
    for index, name in enumerate(buffers):
        if name not in kernel.args:
            raise top.matter.error(("buffers", index), f"buffer {name!r} is not in args, so the kernel never sees it")


def _check_signature(top: Section, kernel: Kernel, code: str) -> None:
    """Compare args with the source as far as plain text tells; templates and macros are left to the compiler."""
    if kernel.is_name_expression:
        return
    found = definitions(code, kernel.entry)
    if not found:
        if not re.search(rf"\b{re.escape(kernel.entry)}\b", code):
            there = ", ".join(global_names(code)) or "none"
            near = did_you_mean(kernel.entry, global_names(code))
            raise top.error("entry", f"entry is {kernel.entry!r}, but the source has no such kernel{near}; it has {there}")
        return
    if not any(definition.extern_c for definition in found):
        raise top.error("entry", f'`{kernel.entry}` is not extern "C"; write extern "C" in front of its __global__')
    problems = [_mismatch(kernel, definition) for definition in found]
    if all(problems):
        raise top.error("args", problems[0])


def _mismatch(kernel: Kernel, definition: Definition) -> str:
    """Return how args differ from a definition, an empty string if they can be meant for each other."""
    parameters = definition.parameters
    if len(parameters) != len(kernel.args):
        listed = ", ".join(parameter.name for parameter in parameters) or "none"
        s = "" if len(parameters) == 1 else "s"
        return f"args names {len(kernel.args)}, but `{kernel.entry}` takes {len(parameters)} parameter{s} ({listed})"
    values = dict(kernel.params)
    maps = [buffer.name for buffer in kernel.buffers if buffer.tensor_map is not None]
    for number, (name, parameter) in enumerate(zip(kernel.args, parameters, strict=True), 1):
        where = f"`{kernel.entry}` takes `{parameter.text}` there"
        if name in maps:
            allowed, said = (Kind.TENSOR_MAP,), f"argument {number}, {name!r}, is a tensor map"
            if parameter.kind is Kind.TENSOR_MAP and "__grid_constant__" not in parameter.text:
                return f"{said}; it must be a `const __grid_constant__ CUtensorMap`, but {where}"
        elif name not in values:
            allowed, said = (Kind.POINTER,), f"argument {number}, {name!r}, is a buffer"
        elif isinstance(values[name], float):
            allowed, said = (Kind.REAL,), f"argument {number}, {name!r}, is a real number"
        else:
            allowed, said = (Kind.INTEGER,), f"argument {number}, {name!r}, is an integer"
        if parameter.kind not in (*allowed, Kind.UNKNOWN):
            return f"{said}, but {where}"
    return ""


__all__ = ["read_kernel"]
