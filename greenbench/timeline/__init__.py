"""Timelines of the GPU: what a trace recorded, and what it says about contexts, their overlap and their ranges.

A trace is read into one `Capture`, whoever recorded it; figures and findings are made from that alone. Nothing here prints.
Import this package inside a command only: it brings numpy.
"""

from __future__ import annotations
