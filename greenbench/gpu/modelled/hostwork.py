"""A host probe on the modelled device: the host's time for one call, from the model's table, and no launch."""

from __future__ import annotations

from greenbench.errors import UnsupportedError
from greenbench.gpu.modelled.work import ModelledReplay, ModelledWork


class ModelledHostWork(ModelledWork):
    """A work whose cost is the host's."""

    most_launches = 240

    def timed(self, times: int) -> float:
        """Let the host's time for so many calls pass, and return it in seconds."""
        mhz, factor = self._arrive()
        total_us = self._time_us(mhz) * factor * times
        self._lane.advance(total_us * 1e3, mhz)
        self._lane.wait()
        return total_us / 1e6

    def launch(self) -> None:
        """Do it once."""
        self.timed(1)

    def capture(self, launches: int) -> ModelledReplay:
        """A graph holds launches; this is none."""
        raise UnsupportedError("a host probe cannot be captured in a graph; leave --timing away")
