"""Fermata, a distributed job scheduler: client and worker for asyncio."""

from fermata import errors, testing, trace
from fermata._task import Cause, Ended, Handler, Middleware, Permanent, RetryAfter, Task
from fermata._transport import TLS, TokenFile
from fermata._version import __version__
from fermata.client import Event, Fermata, FileToken, Job, JobFields, ResumeStore, Run, job, new_request_id
from fermata.errors import FermataError, Violation
from fermata.schedules import cron, every, every_day, every_month, every_week, fixed_delay, once
from fermata.worker import CutOff, Worker

__all__ = [
    "TLS", "Cause", "CutOff", "Ended", "Event", "Fermata", "FermataError", "FileToken", "Handler", "Job", "JobFields",
    "Middleware", "Permanent", "ResumeStore", "RetryAfter", "Run", "Task", "TokenFile", "Violation", "Worker",
    "__version__", "cron", "errors", "every", "every_day", "every_month", "every_week", "fixed_delay", "job",
    "new_request_id", "once", "testing", "trace",
]
