"""Runs one co-location under CUPTI and prints the overlap by device stamps, by CUPTI's steps and by its kernels."""

from __future__ import annotations

import json
import sys

from greenbench.arrivals import Arrivals, Process
from greenbench.catalog import library
from greenbench.colocation.figures import overlap_fraction
from greenbench.costeps import CoSchedule, CoSetup, RoleSchedule, RoleSpec
from greenbench.gpu.cuda import open_cuda
from greenbench.gpu.witness import Witness
from greenbench.models import decode_step, load_model, prefill_request
from greenbench.queueing.model import Kind, Mechanism
from greenbench.workload import settled

FRAME = {"step_gate", "step_start", "step_end", "device_clock", "clock_probe"}


def steps_of(kernels: list[tuple[int, int]], launches: int) -> list[tuple[int, int]]:
    """Put every `launches` kernels of a stream together: they ran in order."""
    return [(kernels[i][0], kernels[i + launches - 1][1]) for i in range(0, len(kernels) - launches + 1, launches)]


def main(mechanism: Mechanism, sms: int, steps: int) -> None:
    """Print {stamps, steps_cupti, kernels_cupti, contexts}.

    A step by CUPTI is from the start of its first kernel to the end of its last one, as the stamps have it. Between its kernels a
    role may wait for SMs, so that its kernels alone cover less.
    """
    witness = Witness()
    gpu = open_cuda("0")
    kernels, model = library(), load_model("llama3-8b")
    decode = settled(decode_step(model, batch=8, context=4096, layers=4), kernels, gpu.device.arch)
    prefill = settled(prefill_request(model, prompt=2048, layers=4), kernels, gpu.device.arch)
    green = mechanism is Mechanism.GREEN
    slots = (0, 1) if green else (None, None)
    roles = (
        RoleSpec(name="latency", kind=Kind.LATENCY, workload=decode, slot=slots[0]),
        RoleSpec(name="background", kind=Kind.BACKGROUND, workload=prefill, slot=slots[1]),
    )
    sizes = (sms, gpu.device.sm_count - sms) if green else ()
    corun = gpu.corun(CoSetup(mechanism=mechanism, roles=roles, sizes=sizes), kernels)
    due = Arrivals(Process.FIXED, 100.0, 1, "latency").first(steps)
    _, contexts = witness.take()
    trace = corun.run(CoSchedule(roles=(RoleSchedule(due_ns=due), RoleSchedule()), limit_s=30))
    seen, later = witness.take()
    streams: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for kernel in seen:
        if kernel.name not in FRAME:
            streams.setdefault((kernel.context, kernel.stream), []).append((kernel.start_ns, kernel.end_ns))
    # The two streams that did most: those of the roles.
    first, second = sorted(streams.values(), key=len, reverse=True)[:2]
    latency, background = (tuple(zip(role.start_ns, role.end_ns, strict=True)) for role in trace.roles)
    print(
        json.dumps(
            {
                "stamps": overlap_fraction(latency, background),
                "steps_cupti": overlap_fraction(steps_of(first, decode.launches), steps_of(second, prefill.launches)),
                "kernels_cupti": overlap_fraction(first, second),
                "kernels": [len(first), len(second)],
                "steps": [len(role.start_ns) for role in trace.roles],
                "contexts": [[context.green, context.sms] for context in (*contexts, *later)],
            }
        )
    )
    corun.close()
    witness.close()
    gpu.close()


if __name__ == "__main__":
    main(Mechanism(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
