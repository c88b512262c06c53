"""The one tree of errors, with the exit code of each branch.

GreenbenchError                 70  an internal error unless a branch below says otherwise
├── UsageError                   2  a command line, plan or kernel file that cannot be meant
│   ├── PlanError                   a plan file, or an option that stands for one of its keys
│   ├── KernelFileError             a kernel's front matter, signature or expressions
│   └── ResultFileError             a run, a journal or a table that is not what it should be
├── MachineError                 4  this machine cannot
│   ├── NoDriverError               no libcuda, no device, no such device
│   ├── DriverTooOldError           the driver lacks what the command needs
│   ├── MissingPackageError         a Python package or a CUDA library is not installed
│   ├── UnfitError                  other processes, throttling, MPS settings, MIG
│   └── NotComparableError          results that must not be compared
├── IncompleteError              5  points failed, coverage lost, --strict
├── OutputError                  5  results cannot be written: the disk is full, the folder read-only
└── InterruptedRunError        130  stopped by the user, resumable

PointError is the outcome of one point and never ends a run:
├── UnsupportedError                the device or driver cannot do this point
└── FailedError                     the point was tried and gave no figure
    └── StickyError                 and the process that tried it is lost
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process says to its caller."""

    DONE = 0
    REGRESSION = 1
    USAGE = 2
    INCONCLUSIVE = 3
    MACHINE = 4
    INCOMPLETE = 5
    INTERNAL = 70
    INTERRUPTED = 130


class GreenbenchError(Exception):
    """Base of every error that greenbench raises on purpose; its text is one sentence for the user."""

    exit_code = ExitCode.INTERNAL


class UsageError(GreenbenchError):
    """The request cannot be meant: value, place and way out are in the text."""

    exit_code = ExitCode.USAGE


class PlanError(UsageError):
    """A plan, or an option that stands for one of its keys, is wrong."""


class KernelFileError(UsageError):
    """A kernel file's front matter, signature or expressions are wrong."""


class ResultFileError(UsageError):
    """A result file cannot be read as what it should be."""


class MachineError(GreenbenchError):
    """This machine cannot do what was asked."""

    exit_code = ExitCode.MACHINE


class NoDriverError(MachineError):
    """There is no driver, no GPU, or not the GPU that was named."""


class DriverTooOldError(MachineError):
    """The driver lacks what the command needs."""


class MissingPackageError(MachineError):
    """A Python package or a CUDA library is not installed."""


class UnfitError(MachineError):
    """The machine is in a state in which measuring would mislead."""


class NotComparableError(MachineError):
    """Results of different backends, devices or drivers were to be compared."""


class IncompleteError(GreenbenchError):
    """The run ended, but something that was asked for is missing."""

    exit_code = ExitCode.INCOMPLETE


class OutputError(GreenbenchError):
    """Results cannot be written."""

    exit_code = ExitCode.INCOMPLETE


class InterruptedRunError(GreenbenchError):
    """The user stopped the run; what was measured is on disk."""

    exit_code = ExitCode.INTERRUPTED


class PointError(GreenbenchError):
    """One point has no figure; the run goes on."""


class UnsupportedError(PointError):
    """The device or driver cannot do this point; the text says what is needed and what is there."""


class FailedError(PointError):
    """The point was tried and gave no valid figure; the text is the row's reason."""


class StickyError(FailedError):
    """The point failed and took the CUDA context of its process along: the worker must be replaced."""
