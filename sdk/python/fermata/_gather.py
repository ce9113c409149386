"""Gathers results while they are frequent.

At a thousand results a second a message, a settlement and an acknowledgement for each of them cost several times what
they cost for three together. A result is gathered only where nobody waits for it:

- It is a success. The next attempt after a failure may be due within milliseconds.
- At least half of the slots have neither an attempt nor a result that is not sent. The node counts the slot of an unsent
  result as taken, and leases in advance only to workers that have half of their slots free.
- The worker and its node do not drain.

The price: results are stored up to GATHER_TIME later, and the attempts of a worker that dies are repeated if they ended
within that time.
"""

GATHER_TIME = 0.003
GATHER_RATE = 250.0  # results a second on a stream from which on they are gathered
MAX_GATHERED = 128  # results
RATE_WINDOW = 0.1  # over which a rate is measured


class RateMeter:
    """Measures how many events a second there are."""

    def __init__(self) -> None:
        self.per_second = 0.0  # of the last window that is complete
        self._events = 0
        self._start: float | None = None

    def count(self, now: float) -> None:
        """Counts an event. A window ends with the first event after its time, so that a pause lowers the rate."""
        if self._start is None:
            self._start = now
        self._events += 1
        span = now - self._start
        if span >= RATE_WINDOW:
            self.per_second = self._events / span
            self._start, self._events = now, 0
