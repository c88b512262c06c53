"""How a number is taken: a session over one device prepares points and visits them block by block, on top of the seam alone."""

from greenbench.measure.session import Session

__all__ = ["Session"]
