"""A green context as torch makes it, for a cross-check: what a user of torch gets is what we get."""

from __future__ import annotations

from typing import Any

from greenbench.errors import UnsupportedError


class TorchContext:
    """torch.cuda's GreenContext of so many SMs with one of its streams; raises UnsupportedError where torch cannot."""

    def __init__(self, sms: int, device: int) -> None:
        try:
            import torch
            from torch.cuda.green_contexts import GreenContext
        except ImportError as error:
            raise UnsupportedError(
                f"torch_green needs torch 2.11 or newer, built for CUDA ({error}): pip install torch"
            ) from error
        if not torch.cuda.is_available():
            raise UnsupportedError(f"torch_green needs torch built for CUDA, and torch {torch.__version__} finds no GPU")
        try:
            torch.cuda.set_device(device)
            # Up to torch 2.11 the class has a maker; later it is called itself.
            make = getattr(GreenContext, "create", GreenContext)
            self._context: Any = make(num_sms=sms, device_id=device)
            self._stream: Any = self._context.Stream()
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            first = str(error).strip().splitlines()[0]
            raise UnsupportedError(f"torch {torch.__version__} makes no green context of {sms} SMs: {first}") from error

    @property
    def handle(self) -> int:
        """The stream's address."""
        return int(self._stream.cuda_stream)


__all__ = ["TorchContext"]
