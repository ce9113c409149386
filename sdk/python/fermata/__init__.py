"""Fermata, a distributed job scheduler: client and worker."""

from fermata._task import Cause, Ended, Handler, Middleware, Permanent, RetryAfter, Task
from fermata._transport import TLS, TokenFile
from fermata._version import __version__
from fermata.worker import CutOff, Worker

__all__ = [
    "TLS", "Cause", "CutOff", "Ended", "Handler", "Middleware", "Permanent", "RetryAfter", "Task", "TokenFile",
    "Worker", "__version__",
]
