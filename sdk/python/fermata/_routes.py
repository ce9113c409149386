"""The addresses that a worker knows, and the order in which it tries them (docs/workers.md, "Finding a node")."""

import random
from collections.abc import Iterable

BACKOFF_BASE, BACKOFF_MAX = 0.1, 5.0  # bound the pause between two attempts to connect to an address
REFUSED_BASE = 2.0  # shortest pause after a node has refused the worker's credential or role
UNREACHED_BASE, UNREACHED_MAX = 5.0, 60.0  # bound the pause for advertised addresses that were never reached
MAX_BRIEF_SESSIONS = 5  # sessions in a row that may end at once before their address counts as failed
MAX_ADVERTISED = 32
MAX_UNVERIFIED_DIALS = 3


def randomized(pause: float) -> float:
    """Returns a pause less up to half of it, so that workers do not act together."""
    return pause / 2 + random.random() * pause / 2


class Route:
    """An address of nodes, with its history."""

    __slots__ = ("address", "configured", "welcomed", "answered", "failures", "total_failures", "brief_sessions",
                 "retry_at", "dialing", "rank")

    def __init__(self, address: str, configured: bool = False) -> None:
        self.address, self.configured = address, configured
        self.welcomed = False  # a node has welcomed this worker there
        self.answered = False  # a node has answered there, also with a refusal
        self.failures = self.total_failures = self.brief_sessions = 0
        self.retry_at = 0.0
        self.dialing = False
        self.rank = 0.0  # random, so that workers prefer different addresses of the same class

    @property
    def unverified(self) -> bool:
        """No node has answered at this advertised address yet."""
        return not self.configured and not self.answered

    @property
    def unreached(self) -> bool:
        """It has failed and has never led to a node. Behind a load balancer all advertised addresses are such."""
        return self.unverified and self.failures > 0

    @property
    def promising(self) -> bool:
        return not self.unreached and self.failures < 2

    def count_failure(self, now: float, without: float) -> None:
        self.failures += 1
        self.total_failures += 1
        pause = min(max(without / 4, BACKOFF_BASE), BACKOFF_MAX)
        if self.unreached:
            pause = min(max(without, UNREACHED_BASE), UNREACHED_MAX)
        self.retry_at = now + randomized(pause)


class Routes:
    """All routes, the configured ones first."""

    def __init__(self, configured: Iterable[str]) -> None:
        self.all = [Route(a, configured=True) for a in dict.fromkeys(configured)]
        self.current = ""  # address of the last session
        self.preferred: list[str] = []  # addresses from a Drain, until the next session
        self._shuffle()

    def find(self, address: str) -> Route | None:
        return next((r for r in self.all if r.address == address), None)

    def _shuffle(self) -> None:
        for route in self.all:
            route.rank = random.random()

    def replace_advertised(self, addresses: list[str]) -> None:
        """Replaces the advertised addresses. An empty list changes nothing. That of the current session stays."""
        if not addresses:
            return
        self.all = [r for r in self.all
                    if r.configured or r.dialing or r.address == self.current or r.address in addresses]
        self._add_advertised(addresses)

    def _add_advertised(self, addresses: list[str]) -> None:
        for address in random.sample(addresses, len(addresses)):
            if self.find(address) is None:
                if not self._make_room():
                    break
                self.all.append(Route(address))
        self._shuffle()

    def _make_room(self) -> bool:
        if sum(not r.configured for r in self.all) < MAX_ADVERTISED:
            return True
        useless = next((r for r in self.all if r.unreached and not r.dialing), None)
        if useless:
            self.all.remove(useless)
        return useless is not None

    def prefer(self, addresses: list[str]) -> None:
        """Makes the next session try these addresses first. They come from a node that drains."""
        self._add_advertised(addresses)
        self.preferred = addresses
        for address in addresses:
            route = self.find(address)
            if route and not route.unreached:
                route.failures, route.retry_at = 0, 0.0

    def mark_welcomed(self, route: Route) -> None:
        route.welcomed, route.answered, route.failures, route.retry_at = True, True, 0, 0.0
        self.current, self.preferred = route.address, []
        if self.find(route.address) is None:
            self.all.append(route)
        self._shuffle()

    def mark_failed(self, route: Route, now: float, without: float, refused: bool = False) -> None:
        """Records a failed attempt to connect. The pause until the next one grows with the time without a session.
        refused: a node refused the worker's credential or role, so that only a new token or role helps."""
        route.count_failure(now, without)
        if refused:
            route.retry_at = now + randomized(min(max(without, REFUSED_BASE), BACKOFF_MAX))

    def mark_ended(self, address: str, now: float, at_once: bool, without: float) -> None:
        """Records that a session was cut."""
        route = self.find(address)
        if route is None:
            return
        route.brief_sessions = route.brief_sessions + 1 if at_once else 0
        if route.brief_sessions >= MAX_BRIEF_SESSIONS:
            route.count_failure(now, without)

    def claim_next(self, now: float, avoid: str) -> tuple[Route | None, float | None]:
        """Returns the best route that may be tried now, and marks it as dialing; else when there will be one, or None
        for never. avoid is the address of an open session, skipped while other routes may lead to a node."""
        last = self.find(self.current)
        if last and last.failures:
            last = None
        doubtful = sum(r.dialing and r.unverified for r in self.all)
        others = any(r.address != avoid and not r.unverified and r.promising for r in self.all)
        best: Route | None = None
        at: float | None = None
        for route in self.all:
            if route.dialing or route.unverified and doubtful >= MAX_UNVERIFIED_DIALS \
                    or route.address == avoid and others:
                continue
            if route.retry_at > now:
                at = route.retry_at if at is None else min(at, route.retry_at)
            elif best is None or self._order(route, last, avoid) < self._order(best, last, avoid):
                best = route
        if best:
            best.dialing = True
        return best, at

    def _order(self, route: Route, last: Route | None, avoid: str) -> tuple[int, bool, float]:
        if route.unreached:
            priority = 6
        elif avoid and route.address == avoid:
            priority = 5
        elif route.address in self.preferred:
            priority = 0
        elif route is last:
            priority = 1
        elif route.configured:
            priority = 2
        else:
            priority = 3 if route.welcomed else 4
        return priority, route.failures > 0, route.rank
