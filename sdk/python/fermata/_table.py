"""The leases of a worker, and how long it may trust them. Everything here runs in the event loop.

A lease is queued (waits for a slot), early (has a slot, is not due), ready (has a slot, its task has not begun),
running, ended (its result is not acknowledged), and then gone.

One time, trusted_until, applies to all leases, and acknowledged heartbeats move it on. A process that was suspended
does not notice it, so that the time is compared with the clock before each handler starts. Once it has passed, only
another session moves it on: messages that waited in the socket prove nothing.

Sessions follow one another:

    build_hello   names the leases; the previous session, if still open, is superseded
    attach        the new session is welcomed and becomes the current one, or
    undo_hello    it is refused, and the previous session continues
    detach        a session has ended; without a current one the trust runs out
"""

import asyncio
import collections
import enum
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fermata import trace
from fermata._gather import GATHER_RATE, GATHER_TIME, MAX_GATHERED
from fermata._task import AsyncHandler, Cause, Ending, NotTrusted, Outcome, Task, ending_of, failure_of, task_of
from fermata.v1 import worker_service_pb2 as pb

if TYPE_CHECKING:
    from fermata._session import Session

MAX_SLOT_WAIT = 0.05  # how long a lease may wait for a slot before it is returned
MAX_STARTS = 32  # handlers that start in one iteration of the event loop: what they do at once delays heartbeats
BLOCKED_LOG_PAUSE = 60.0  # between two warnings of a blocked event loop

clock = time.monotonic


class Phase(enum.Enum):
    QUEUED = 1
    EARLY = 2
    READY = 3
    RUNNING = 4
    ENDED = 5
    GONE = 6


class StoppingHandlers:
    """Counts the handlers that were cancelled because trust has ended, until their stop margin is over."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining
        self.done = asyncio.Event()


class Attempt:
    """One lease with its state."""

    __slots__ = ("id", "lease", "task", "handler", "received_at", "phase", "result", "void_result", "named_in_hello",
                 "known_epoch", "lost", "lost_epoch", "lost_at", "stopping", "sent_on", "sent_at", "runner",
                 "in_thread", "timer")

    def __init__(self, lease: pb.Lease, handler: AsyncHandler | None, epoch: int, now: float) -> None:
        self.id: str = lease.lease_id
        self.lease = lease
        self.task: Task = task_of(lease)
        self.task._attempt = self
        self.handler = handler  # None: this worker does not have it
        self.received_at = now
        self.phase = Phase.QUEUED
        self.result: pb.Result | None = None
        self.void_result = False  # the handler failed because the lease was lost
        self.named_in_hello = False  # so that the node counts the attempt as started
        self.known_epoch = epoch  # of the latest session whose node knows that this worker has the lease
        self.lost = False
        self.lost_epoch = 0  # of the session whose node reported that, or 0 if this process's clock decided
        self.lost_at = 0.0
        self.stopping: StoppingHandlers | None = None  # set if the handler ran when the lease was lost
        self.sent_on: Session | None = None  # on which the result was last sent, at sent_at
        self.sent_at = 0.0
        self.runner: asyncio.Task[None] | None = None
        self.in_thread = False
        self.timer: asyncio.TimerHandle | None = None  # of the start, then of the timeout

    def stop_timer(self) -> None:
        if self.timer:
            self.timer.cancel()
            self.timer = None

    @property
    def relies_on_lease(self) -> bool:
        """Whether the handler relies on the lease now, or will when it starts."""
        return self.phase is not Phase.ENDED and not self.lost

    def end(self, cause: Cause) -> None:
        """Makes the handler end. The first cause counts."""
        if self.task.cause is None:
            self.task.end(cause)
            if self.phase is Phase.RUNNING and not self.in_thread and self.runner:
                self.runner.cancel()


class Table:
    """The state of a worker."""

    def __init__(self, slots: int, handlers: dict[str, AsyncHandler], log: "logging.LoggerAdapter[logging.Logger]",
                 advertised: Callable[[list[str]], None]) -> None:
        self.slots, self.handlers, self.log = slots, handlers, log
        self.on_addresses = advertised
        self.loop = asyncio.get_running_loop()
        self.attempts: dict[str, Attempt] = {}
        self.waiting: collections.deque[Attempt] = collections.deque()  # queued, and some that are gone
        self.pending_returns: list[str] = []  # returned leases that no session has taken yet
        self.pending_losses: dict[str, None] = {}  # lost leases that are not acknowledged, the oldest first
        self.ready: collections.deque[Attempt] = collections.deque()  # ready, and some that are gone
        self._starts = 0  # in this iteration of the event loop
        self.slots_taken = 0
        self.draining = False
        self.stopped = False
        self.cut_off = 0  # attempts that ended because the worker stopped
        self.idle = asyncio.Event()  # draining, and nothing is left to run or send
        self.current: Session | None = None
        self.epoch = 0  # of the last Hello
        self.hello_epoch = 0  # of the Hello that is not answered yet
        self.welcomed = 0  # sessions
        self.lease_ttl = 30.0
        self.link_error = "not connected yet"
        self.trusted_until = 0.0
        self.stop_margin = 0.0
        self.stopping: StoppingHandlers | None = None
        self._late_timer: asyncio.TimerHandle | None = None
        self._trust_timer: asyncio.TimerHandle | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._blocked_logged_at = -BLOCKED_LOG_PAUSE

    # Leases

    def accept(self, session: "Session", leases: Iterable[pb.Lease]) -> None:
        """Adds leases. Those without a free slot wait in order."""
        self.end_trust_if_over()
        now = clock()
        for lease in leases:
            have = self.attempts.get(lease.lease_id)
            if have is not None:
                if have.phase is Phase.ENDED:  # the node has sent the lease again, so the result is sent again
                    self._deliver(have)
                continue
            if self.draining or session.closed_to_leases or session is not self.current:
                self._return_lease(session, lease.lease_id)
                continue
            a = Attempt(lease, self.handlers.get(lease.handler), session.epoch, now)
            self.attempts[a.id] = a
            if self.slots_taken >= self.slots:
                self.waiting.append(a)
                self._set_late_timer(MAX_SLOT_WAIT)
                session.wake()  # the results that are gathered have slots, for the node
            else:
                self._take_slot(a)

    def _return_lease(self, session: "Session", lease_id: str) -> None:
        if session.ended:
            self.pending_returns.append(lease_id)
        else:
            session.return_lease(lease_id)

    def _take_slot(self, a: Attempt) -> None:
        self.slots_taken += 1
        start_at = a.received_at + a.lease.start_after.ToNanoseconds() / 1e9
        if start_at > clock():
            a.phase = Phase.EARLY
            a.timer = self.loop.call_at(start_at, self._start_due, a)
        else:
            self._make_ready(a)

    def _start_due(self, a: Attempt) -> None:
        self.end_trust_if_over()
        if a.phase is Phase.EARLY:
            self._make_ready(a)

    def _make_ready(self, a: Attempt) -> None:
        a.timer = None
        a.phase = Phase.READY
        self.ready.append(a)
        if self._starts == 0:
            self.loop.call_soon(self._start_more)
        self._start_ready()

    def _start_ready(self) -> None:
        while self.ready and self._starts < MAX_STARTS:
            a = self.ready.popleft()
            if a.phase is Phase.READY:
                self._starts += 1
                a.runner = self.loop.create_task(self._run(a), name=f"fermata {a.task.run}")

    def _start_more(self) -> None:
        """Starts what the previous iteration of the event loop has left."""
        self._starts = 0
        if self.ready:
            self.loop.call_soon(self._start_more)
            self._start_ready()

    async def _run(self, a: Attempt) -> None:
        """Runs a handler. It catches everything: no exception of a handler ends the worker."""
        self.end_trust_if_over()
        if a.phase is not Phase.READY:
            return
        a.phase = Phase.RUNNING
        begin = clock()
        if self.current:
            self.current.started.append(a)
            self._schedule_flush(self.current, None, begin)
        if a.task.timeout:
            a.timer = self.loop.call_later(a.task.timeout, a.end, Cause.TIMED_OUT)
        try:
            if a.handler is None:
                ending = Ending(Outcome.OUTCOME_FAILED, f"no handler {a.task.handler!r} on this worker")
            else:
                with trace.use(a.task.traceparent, a.task.tracestate):
                    value = await a.handler(a.task)
                ending = ending_of(a.task, value)
        except BaseException as error:  # SystemExit and KeyboardInterrupt of a handler too
            if isinstance(error, NotTrusted):
                self.end_trust_if_over()
            ending = failure_of(a.task, error)
        self._finish(a, ending, clock() - begin)

    def _finish(self, a: Attempt, ending: Ending, took: float) -> None:
        """Records the end of a handler, and gives its slot to the first waiting lease."""
        a.stop_timer()
        a.runner = None
        self.slots_taken -= 1
        a.phase = Phase.ENDED
        a.result = pb.Result(lease_id=a.id, outcome=ending.outcome, error=ending.error, output=ending.output)
        a.result.duration.FromNanoseconds(max(0, int(took * 1e9)))
        if ending.retry_after > 0:
            a.result.retry_after.FromNanoseconds(int(min(ending.retry_after, 1e9) * 1e9))
        if a.stopping:
            a.stopping.remaining -= 1
            if a.stopping.remaining == 0:
                self._end_stopping(a.stopping)
        cause = a.task.cause
        if ending.failed:
            self._log_failure(a, ending)
        if ending.failed and cause is Cause.STOPPED:
            self.cut_off += 1
            self._give_up(a)
        else:
            a.void_result = ending.failed and cause is Cause.LEASE_LOST
            self._deliver(a, new=True)
        self._start_waiting()
        self.check_idle()

    def _log_failure(self, a: Attempt, ending: Ending) -> None:
        name = {Cause.LEASE_LOST: "lease lost", Cause.STOPPED: "worker stops"}.get(
            a.task.cause, Outcome.Name(ending.outcome).removeprefix("OUTCOME_").lower())  # type: ignore[arg-type]
        self.log.info("attempt failed: run=%s attempt=%d outcome=%s error=%s", a.task.run, a.task.attempt, name,
                      ending.error)
        if ending.stack:
            self.log.error("handler %s raised an exception: run=%s\n%s", a.task.handler, a.task.run, ending.stack)

    def _start_waiting(self) -> None:
        while self.waiting:
            a = self.waiting.popleft()
            if a.phase is Phase.QUEUED:
                self._take_slot(a)
                return

    def _forget(self, a: Attempt) -> None:
        a.phase = Phase.GONE
        self.attempts.pop(a.id, None)

    def _release_unstarted(self, a: Attempt) -> None:
        """Frees the slot of an attempt that has one and has not started."""
        a.stop_timer()
        self.slots_taken -= 1
        self._start_waiting()

    def _return_unstarted(self, session: "Session | None", *phases: Phase, named_too: bool = True) -> None:
        """Returns leases that have not started: on the session if its node knows them, else on the next one."""
        for a in list(self.attempts.values()):
            if a.phase not in phases or a.named_in_hello and not named_too:
                continue
            before = a.phase
            self._forget(a)
            if before is not Phase.QUEUED:
                a.stop_timer()
                self.slots_taken -= 1
            if session is not None and a.known_epoch == session.epoch:
                session.return_lease(a.id)
            else:
                self.pending_returns.append(a.id)
        if Phase.QUEUED not in phases:
            while self.waiting and self.slots_taken < self.slots:
                self._start_waiting()

    def _set_late_timer(self, pause: float) -> None:
        if self._late_timer is None:
            self._late_timer = self.loop.call_later(pause, self._return_late)

    def _return_late(self) -> None:
        """Returns leases that have waited for a slot for MAX_SLOT_WAIT."""
        self._late_timer = None
        if self.current is None:
            return  # the next Hello returns what still waits
        now = clock()
        kept: collections.deque[Attempt] = collections.deque()
        for a in self.waiting:
            if a.phase is not Phase.QUEUED:
                continue
            if now - a.received_at < MAX_SLOT_WAIT:
                kept.append(a)
                continue
            self._forget(a)
            if a.known_epoch == self.current.epoch:
                self.current.return_lease(a.id)
            else:
                self.pending_returns.append(a.id)
        self.waiting = kept
        if kept:
            self._set_late_timer(max(0.001, MAX_SLOT_WAIT - (now - kept[0].received_at)))
        self.check_idle()

    # Results

    def _deliver(self, a: Attempt, new: bool = False) -> None:
        """Puts a result into the outbox of the current session. Without a session, or while another node is asked to
        take the leases over, it waits for the next session. new: the attempt has just ended."""
        session = self.current
        if session is None or session.superseded:
            if a.void_result and a.known_epoch != self.hello_epoch:
                self._give_up(a)
            return
        if a.void_result:
            if session.epoch in (a.lost_epoch, a.known_epoch):  # the node waits for an answer to free the slot
                session.returned.append(a.id)
                session.wake()
            self._give_up(a)
            return
        a.sent_on, a.sent_at = session, clock()
        session.results.append(a)
        if new:
            self._schedule_flush(session, a, a.sent_at)
        else:
            session.wake()

    def _schedule_flush(self, session: "Session", ended: Attempt | None, now: float) -> None:
        """Sends starts and results now, or later while they are gathered. ended is the attempt that has a result; None:
        there is only a start."""
        if ended:
            session.result_rate.count(now)
        if self._may_gather(session, ended):
            session.wake_within(GATHER_TIME)
        else:
            session.wake()

    def _may_gather(self, session: "Session", ended: Attempt | None) -> bool:
        unsent = len(session.results)
        return (session.result_rate.per_second >= GATHER_RATE
                and (ended is None or ended.result is not None and ended.result.outcome == Outcome.OUTCOME_SUCCEEDED)
                and unsent < MAX_GATHERED and 2 * (self.slots_taken + unsent) <= self.slots
                and not self.draining and not session.closed_to_leases)

    def _give_up(self, a: Attempt) -> None:
        """Forgets an ended attempt whose lease is lost, and reports the loss."""
        self._forget(a)
        self._report_lost([a.id])

    def _report_lost(self, ids: Iterable[str]) -> None:
        new = [i for i in ids if i not in self.pending_losses]
        self.pending_losses.update(dict.fromkeys(new))
        while len(self.pending_losses) > 2 * self.slots + 1024:  # older nodes do not acknowledge reports
            del self.pending_losses[next(iter(self.pending_losses))]
        if self.current and new:
            self.current.lost += new
            self.current.wake()

    def acknowledge(self, session: "Session", acks: Iterable[pb.ResultAck]) -> None:
        """Forgets acknowledged results. After another node was asked to take the leases over, only its
        acknowledgements count, because it needs the result of every lease named to it."""
        if session is not self.current or session.superseded:
            return
        for ack in acks:
            a = self.attempts.get(ack.lease_id)
            if a is None:
                self.pending_losses.pop(ack.lease_id, None)
            elif a.phase is Phase.ENDED:
                self._forget(a)
                if ack.status == pb.ResultAck.STATUS_STALE:
                    self._report_lost([a.id])
                    self.log.info("result discarded, its lease had ended: run=%s attempt=%d", a.task.run,
                                  a.task.attempt)
        self.check_idle()

    def resend_unacknowledged(self) -> None:
        """Sends results again that were not acknowledged within the life of a lease."""
        now = clock()
        if self.current:
            for a in list(self.attempts.values()):
                if a.phase is Phase.ENDED and now - a.sent_at > self.lease_ttl:
                    self._deliver(a)

    # Cancellation

    def cancel(self, session: "Session", message: pb.Cancel) -> None:
        """Ends handlers that the node cancels. What has not started is returned, because a result would count as a
        start."""
        for lease_id in message.lease_ids:
            a = self.attempts.get(lease_id)
            if message.reason == pb.Cancel.REASON_LEASE_LOST:
                if a is None:
                    session.returned.append(lease_id)
                elif a.known_epoch <= session.epoch:  # otherwise a later node has the lease
                    self._lose(session, a)
            elif a is not None:
                timed_out = message.reason == pb.Cancel.REASON_TIMED_OUT
                if a.phase is Phase.RUNNING:
                    a.end(Cause.TIMED_OUT if timed_out else Cause.CANCELLED)
                elif a.phase is not Phase.ENDED:
                    self._cancel_unstarted(session, a, timed_out)
        session.wake()
        self.check_idle()

    def _lose(self, session: "Session", a: Attempt) -> None:
        a.lost, a.lost_epoch, a.lost_at = True, session.epoch, a.lost_at or clock()
        if a.phase is Phase.RUNNING:
            a.end(Cause.LEASE_LOST)
        elif a.phase is not Phase.ENDED:
            before = a.phase
            self._forget(a)
            session.returned.append(a.id)
            if before is not Phase.QUEUED:
                self._release_unstarted(a)

    def _cancel_unstarted(self, session: "Session", a: Attempt, timed_out: bool) -> None:
        before = a.phase
        if timed_out:
            a.phase = Phase.ENDED
            a.result = pb.Result(lease_id=a.id, outcome=pb.Result.OUTCOME_TIMED_OUT,
                                 error="the attempt's timeout has passed before it started")
            self._deliver(a)
        else:
            self._forget(a)
            session.return_lease(a.id)
        if before is not Phase.QUEUED:
            self._release_unstarted(a)

    # Trust

    def trusts_leases(self) -> bool:
        return clock() < self.trusted_until

    def end_trust_if_over(self) -> None:
        """Gives up all leases if the clock has passed the end of trust before its timer fired."""
        if self.welcomed and not self.trusts_leases():
            self._end_trust()

    def _end_trust(self) -> None:
        session, self.current = self.current, None
        self._lose_all()
        if session:
            self.link_error = "the node did not acknowledge a heartbeat in time, or this process was suspended"
            session.cancel(self.link_error)

    def _lose_all(self) -> None:
        self._return_unstarted(None, Phase.QUEUED, Phase.EARLY, Phase.READY)
        self.waiting.clear()
        self._report_lost(self.pending_returns)
        now = clock()
        stopping, lost = [], 0
        for a in list(self.attempts.values()):
            if a.lost:
                continue
            lost += 1
            a.lost, a.lost_epoch, a.lost_at, a.sent_on = True, 0, now, None
            if a.phase is Phase.RUNNING:
                stopping.append(a)
        if stopping:
            u = StoppingHandlers(len(stopping))
            self.stopping = u
            self.loop.call_later(self.stop_margin, self._end_stopping, u)
            for a in stopping:
                a.stopping = u
                a.end(Cause.LEASE_LOST)
        self.check_idle()
        if lost:
            self.log.warning("failed to confirm leases in time, leases lost: attempts=%d", lost)

    def _end_stopping(self, u: StoppingHandlers) -> None:
        u.done.set()
        if self.stopping is u:
            self.stopping = None

    def _begin_trust(self, session: "Session") -> None:
        until = session.hello_at + session.trust_period()
        session.unconfirmed = session.unconfirmed and any(a.relies_on_lease for a in self.attempts.values())
        if not session.unconfirmed or not session.session_ttl or until < self.trusted_until:
            self.trusted_until = until
        self.stop_margin = session.stop_margin()
        self._set_trust_timer()
        session.next_heartbeat_at = clock()
        self._pace_heartbeats(session)

    def _set_trust_timer(self) -> None:
        if self._trust_timer:
            self._trust_timer.cancel()
        self._trust_timer = self.loop.call_at(self.trusted_until, self._check_trust)

    def _check_trust(self) -> None:
        if self.stopped or not self.welcomed:
            return
        if self.trusts_leases():
            self._set_trust_timer()  # the end has moved on
        else:
            self._end_trust()

    def _on_heartbeat_timer(self) -> None:
        if self.current and not self.stopped:
            self._warn_if_blocked(self.current)
            self._pace_heartbeats(self.current)

    def _warn_if_blocked(self, session: "Session") -> None:
        late = clock() - session.timer_at
        if late > (session.session_ttl or self.lease_ttl) / 8 and clock() - self._blocked_logged_at > BLOCKED_LOG_PAUSE:
            self._blocked_logged_at = clock()
            self.log.warning("event loop was blocked for %.1f s: an async handler must not block; "
                             "write it without async, and it runs in a thread", late)

    def _pace_heartbeats(self, session: "Session") -> None:
        """Sends a heartbeat if one is due, checks that the last one was acknowledged, and sets the timer."""
        now = clock()
        if not session.session_ttl:  # the node takes none; this call shows that the process is not suspended
            if self.trusts_leases():
                self.trusted_until = now + session.trust_period()
            self._set_heartbeat_timer(session, now + session.trust_period() / 4)
            return
        if now >= session.next_heartbeat_at:
            session.next_heartbeat_at = now + session.session_ttl / 4
            session.queue_heartbeat(now)
        following = session.next_heartbeat_at
        overdue_at = session.ack_overdue_at()
        if overdue_at is not None:
            # After a suspension of the process the acknowledgement may not be read yet.
            suspended = session.timer_at > 0 and now - session.timer_at > session.ack_timeout() / 2
            if now >= overdue_at and not suspended:
                session.mark_unresponsive()
            else:
                following = min(following, max(overdue_at, now + session.ack_timeout() / 4))
        self._set_heartbeat_timer(session, following)

    def _set_heartbeat_timer(self, session: "Session", at: float) -> None:
        session.timer_at = at
        if self._heartbeat_timer:
            self._heartbeat_timer.cancel()
        self._heartbeat_timer = self.loop.call_at(at, self._on_heartbeat_timer)

    def confirm(self, session: "Session", ack: pb.HeartbeatAck) -> None:
        """Extends trust from when the acknowledged heartbeat was sent: the node had the session when it read it."""
        sent_at = session.take_ack(ack.seq)
        if sent_at is None:
            return
        session.unconfirmed = session.unconfirmed and not ack.confirmed
        if session is self.current and not session.unconfirmed and self.trusts_leases():
            session.confirmed_at = sent_at
            self.trusted_until = sent_at + session.trust_period()

    # Sessions

    async def build_hello(self, session: "Session") -> list[str]:
        """Returns the leases for the Hello of a session: every lease that the node is to take over. A lease that it
        does not name has ended for the node, which may lease the job again; so cancelled handlers have to end first."""
        self.end_trust_if_over()
        while self.stopping:
            await self.stopping.done.wait()
        self.epoch += 1
        session.epoch = self.hello_epoch = self.epoch
        self._return_unstarted(self.current, Phase.QUEUED)  # a node would count them as started
        self.waiting.clear()
        if self.current:
            self.current.closed_to_leases = self.current.superseded = True
        live = self._live_leases(session.epoch)
        session.unconfirmed = any(self.attempts[i].relies_on_lease for i in live)
        return live

    def _live_leases(self, epoch: int) -> list[str]:
        """Lists the leases to take over: those that run, those that have a slot, ended ones. A Hello has room for twice
        the slots and 1024 more."""
        most, now = 2 * self.slots + 1024, clock()
        ids: list[str] = []
        for phase in (Phase.RUNNING, Phase.READY, Phase.EARLY, Phase.ENDED):
            for a in self.attempts.values():
                if a.phase is phase and len(ids) < most and self._is_live(a, now):
                    a.known_epoch, a.named_in_hello = epoch, True
                    ids.append(a.id)
        return ids

    def _is_live(self, a: Attempt, now: float) -> bool:
        if not a.lost or a.phase is Phase.ENDED and not a.void_result:  # a result that may still be accepted
            return True
        # The handler still runs although its lease has certainly ended: it only holds a slot, which the node must not
        # fill.
        return a.phase is Phase.RUNNING and (a.lost_epoch != 0 or now - a.lost_at >= self.lease_ttl)

    def undo_hello(self, refused: "Session") -> None:
        """Reverts build_hello. The previous session's node decides about its leases again."""
        self.hello_epoch = 0
        current = self.current
        if current:
            current.superseded, current.closed_to_leases = False, current.drain_received
            for a in self.attempts.values():
                if a.known_epoch == refused.epoch:
                    a.known_epoch = current.epoch
            if self.draining:
                current.announce_stop()
            current.wake()
        self._resend_results()
        self.check_idle()

    def attach(self, session: "Session") -> None:
        """Makes a welcomed session the current one."""
        self.end_trust_if_over()
        if self.current:
            self.current.started, self.current.results = [], []
        self.current, self.hello_epoch, self.lease_ttl = session, 0, session.lease_ttl
        self.welcomed += 1
        if self.draining:
            session.announce_stop()
        self._send_pending_returns(session)
        session.lost = list(self.pending_losses)
        self._resend_results()
        self._begin_trust(session)
        session.wake()

    def _send_pending_returns(self, session: "Session") -> None:
        ids, self.pending_returns = self.pending_returns, []
        for lease_id in ids:
            session.return_lease(lease_id)

    def _resend_results(self) -> None:
        for a in list(self.attempts.values()):
            if a.phase is Phase.ENDED:
                self._deliver(a)

    def leave_node(self, session: "Session") -> None:
        """Records that the session's node drains, and returns leases that have no slot. A node that drains keeps the
        leases when the stream ends, so that they can be trusted for longer."""
        session.closed_to_leases = session.drain_received = True
        if session is self.current and session.confirmed_at and self.trusts_leases():
            self.trusted_until = session.confirmed_at + session.trust_period()
        self._return_unstarted(session, Phase.QUEUED)
        self.waiting.clear()
        session.wake()

    def detach(self, session: "Session") -> None:
        """Removes an ended session. Its leases stay trusted for the trust period without a session."""
        for a in list(self.attempts.values()):
            if a.phase is Phase.ENDED and a.lost and a.sent_on is session:
                self._give_up(a)
        self.pending_returns += session.unconfirmed_returns()
        if self.current is not session:
            if self.current:
                self._send_pending_returns(self.current)
                self.current.wake()
            self.check_idle()
            return
        self.current, self.link_error = None, session.error
        self._resend_results()  # void ones cannot be reported now
        if not session.session_ttl and self.trusts_leases():
            self.trusted_until = session.last_contact() + session.trust_period()
            self._set_trust_timer()
        self.check_idle()

    # The end

    def begin_drain(self) -> int:
        """Takes no further leases, and returns how many handlers run."""
        self.draining = True
        session = self.current
        self._return_unstarted(session, Phase.QUEUED)
        self.waiting.clear()
        self._return_unstarted(session, Phase.EARLY, named_too=False)
        if session and session.superseded:
            # Another node is asked to take over its leases: one of the two is notified when that has answered.
            session.wake()
        elif session:
            session.announce_stop()
        self.check_idle()
        return self.slots_taken

    def check_idle(self) -> None:
        """Sets idle when draining is complete."""
        if not self.draining or self.attempts:
            return
        session = self.current
        if session is None and self.pending_returns or session is not None and not session.is_flushed():
            return
        self.idle.set()

    def halt(self) -> None:
        """Ends all handlers, because the worker has waited long enough."""
        self._return_unstarted(self.current, Phase.READY)
        for a in list(self.attempts.values()):
            if a.phase is Phase.RUNNING:
                a.end(Cause.STOPPED)
        self.check_idle()

    def close(self) -> None:
        """Stops all timers."""
        self.stopped = True
        for timer in (self._late_timer, self._trust_timer, self._heartbeat_timer):
            if timer:
                timer.cancel()
        for a in self.attempts.values():
            a.stop_timer()
            if a.phase is Phase.RUNNING:
                a.end(Cause.STOPPED)

    def handle(self, session: "Session", message: pb.WorkResponse) -> None:
        """Handles a message of the node. Unknown ones are of later versions."""
        kind = message.WhichOneof("message")
        if kind == "leases":
            self.accept(session, message.leases.leases)
        elif kind == "result_acks":
            self.acknowledge(session, message.result_acks.acks)
        elif kind == "cancel":
            self.cancel(session, message.cancel)
        elif kind == "heartbeat_ack":
            self.confirm(session, message.heartbeat_ack)
        elif kind == "addresses":
            self.on_addresses(list(message.addresses.addresses))
        elif kind == "drain":
            self.leave_node(session)
            session.receive_drain(list(message.drain.addresses))
        elif kind == "relocate":  # the session goes on until another node has welcomed the worker
            session.receive_drain(list(message.relocate.addresses))


