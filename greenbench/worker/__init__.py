"""Child processes that own the GPU: started, sent work, watched, killed and replaced from here. The parent never touches CUDA."""

from greenbench.worker.process import Lost, Worker
from greenbench.worker.survey import DeviceReport, Survey, survey

__all__ = ["DeviceReport", "Lost", "Survey", "Worker", "survey"]
