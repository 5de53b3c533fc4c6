"""`Pool`: tasks in killable processes, several at once; and the thread behind it, which owns the
workers, and to which everything else talks."""

from __future__ import annotations

import contextlib
import heapq
import os
import pickle
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from whet.core.errors import UsageError
from whet.workers import child, process
from whet.workers.answers import (
    Garbled,
    Report,
    WorkerNotStarted,
    describe_exit,
    read_report,
    with_output,
)
from whet.workers.process import (
    START_LIMIT_S,
    TICK_S,
    Mode,
    Worker,
    available_cores,
    check_mode,
    pack,
)
from whet.workers.supervisor import Supervisor, close_at_exit, lease
from whet.workers.task import Kind, Task, TaskOutcome


class Pool:
    """Runs tasks in worker processes and hands each outcome out once. From `open_pool`.

    A thread of its own starts tasks, enforces their limits and collects results, so the work goes
    on while the caller does something else. A worker that dies, is killed, or whose task left
    processes running, goes with all its descendants and its folder.
    """

    def __init__(self, dispatcher: Dispatcher, mode: Mode) -> None:
        self._dispatcher = dispatcher
        self._mode = mode
        self._tickets = 0
        self._submitting = threading.Lock()
        self._finalizer = weakref.finalize(self, dispatcher.close)
        self._finalizer.atexit = False
        close_at_exit(self)

    def submit(self, task: Task, priority: int = 0) -> int:
        """Queues the task and returns its ticket. Lower priorities start first, then older ones."""
        payload: bytes | None = None
        refusal: TypeError | None = None
        if self._mode == "spawn":
            try:
                payload = pack((task.call, task.args), f"task '{task.name}'")
            except TypeError as problem:
                refusal = problem
        with self._submitting:
            self._tickets += 1
            ticket = self._tickets
        if refusal is None:
            self._dispatcher.submit(QueuedTask(priority, ticket, task, payload))
        else:
            now = time.monotonic()
            outcome = TaskOutcome(
                ticket, Kind.RAISED, error=str(refusal), exception=refusal, started=now, ended=now
            )
            self._dispatcher.refuse(outcome)
        return ticket

    def wait(self, timeout: float | None = None) -> list[TaskOutcome]:
        """What has finished, as soon as that is anything.

        Empty when `timeout` seconds have passed, or at once when nothing is pending.
        """
        return self._dispatcher.wait(timeout)

    @property
    def pending(self) -> int:
        """Tasks submitted whose outcome `wait` has not handed out."""
        return self._dispatcher.pending

    def running(self) -> tuple[int, ...]:
        """Tickets of the tasks that are being executed, oldest start first."""
        return self._dispatcher.running

    def cancel(self, ticket: int) -> None:
        """Drops or kills the task. Unless it has already finished, its outcome is `cancelled`."""
        self._dispatcher.cancel(ticket)

    def cancel_all(self) -> None:
        self._dispatcher.cancel(None)

    def limit(self, tickets: Iterable[int], limit_s: float | None) -> None:
        """Gives tasks another limit, counted from their start, whether they run already or wait."""
        self._dispatcher.limit(frozenset(tickets), limit_s)

    def reorder(self, priorities: Mapping[int, int]) -> None:
        """Gives tasks that wait another priority, by ticket."""
        self._dispatcher.reorder(dict(priorities))

    def close(self) -> None:
        """Kills everything, cleans up and drops the outcomes not yet handed out."""
        self._finalizer.detach()
        self._dispatcher.close()
        self._dispatcher.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_pool(
    jobs: int | None = None,
    mode: Mode | str = "spawn",
    on_start: Callable[[int], None] | None = None,
) -> Pool:
    """A pool of `jobs` workers, by default as many as there are cores to run on.

    With `mode="spawn"` they are fresh interpreters, started now and used again and again; tasks
    are pickled. With "fork" each task gets a copy of this process, so it may be a closure.
    `on_start` is called with each ticket that starts, from the pool's own thread.
    """
    checked = check_mode(mode)
    count = available_cores() if jobs is None else jobs
    if count < 1:
        raise UsageError(f"jobs is {count}; a pool needs at least 1")
    return Pool(Dispatcher(lease(), count, checked, on_start), checked)


_FAILED_STARTS = 3
"""So many workers in a row that never got ready, and the pool stops trying."""


@dataclass(order=True, frozen=True)
class QueuedTask:
    priority: int
    ticket: int
    task: Task = field(compare=False)
    payload: bytes | None = field(compare=False)


@dataclass(eq=False)
class _Slot:
    """A worker, and the job it has. A pre-started worker is `ready` once it has said so.

    `place` is the lowest number that was free when it started.
    """

    worker: Worker
    place: int
    since: float
    ready: bool
    job: QueuedTask | None = None

    @property
    def deadline(self) -> float | None:
        if not self.ready:
            return self.since + START_LIMIT_S
        if self.job is None or self.job.task.limit_s is None:
            return None
        return self.since + self.job.task.limit_s


@dataclass(frozen=True)
class _Cancel:
    ticket: int | None


@dataclass(frozen=True)
class _NewLimit:
    tickets: frozenset[int]
    limit_s: float | None


@dataclass(frozen=True)
class _Reorder:
    priorities: Mapping[int, int]


_Order = QueuedTask | _Cancel | _NewLimit | _Reorder


class Dispatcher:
    def __init__(
        self, supervisor: Supervisor, jobs: int, mode: Mode, on_start: Callable[[int], None] | None
    ) -> None:
        self._supervisor = supervisor
        self._jobs = jobs
        self._mode = mode
        self._on_start = on_start
        self._news = threading.Condition()
        self._finished: deque[TaskOutcome] = deque()
        self.pending = 0
        self.running: tuple[int, ...] = ()
        self._problem: BaseException | None = None
        self._closing = False
        self._orders: deque[_Order] = deque()
        self._alarm, self._bell = process.new_pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(self._bell, False)
        self._queue: list[QueuedTask] = []
        self._slots: list[_Slot] = []
        self._failed_starts = 0
        self._start_error = ""
        self._thread = threading.Thread(target=self._work, name="whet-pool", daemon=True)
        self._thread.start()

    def submit(self, job: QueuedTask) -> None:
        self._check_open()
        with self._news:
            self.pending += 1
        self._order(job)

    def refuse(self, outcome: TaskOutcome) -> None:
        self._check_open()
        with self._news:
            self.pending += 1
        self._deliver([outcome])

    def cancel(self, ticket: int | None) -> None:
        self._order(_Cancel(ticket))

    def limit(self, tickets: frozenset[int], limit_s: float | None) -> None:
        self._order(_NewLimit(tickets, limit_s))

    def reorder(self, priorities: Mapping[int, int]) -> None:
        self._order(_Reorder(priorities))

    def wait(self, timeout: float | None) -> list[TaskOutcome]:
        with self._news:
            self._news.wait_for(
                lambda: self._finished or self._problem or self._closing or not self.pending,
                timeout,
            )
            if self._problem is not None:
                raise RuntimeError("the worker pool failed") from self._problem
            outcomes = list(self._finished)
            self._finished.clear()
            self.pending -= len(outcomes)
        return outcomes

    def close(self) -> None:
        """Asks the thread to end everything. Does not wait, since the collector may call it."""
        if not self._supervisor.foreign:
            self._closing = True
            self._ring()

    def join(self) -> None:
        if not self._supervisor.foreign and threading.current_thread() is not self._thread:
            self._thread.join()

    def _check_open(self) -> None:
        if self._closing or self._supervisor.foreign:
            raise RuntimeError("the pool is closed, or was opened by another process")

    def _order(self, order: _Order) -> None:
        self._orders.append(order)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it has ended
            os.write(self._bell, b"!")

    # From here on, only the dispatcher's own thread.

    def _work(self) -> None:
        try:
            while not self._closing:
                self._take_orders()
                self._staff()
                self._assign()
                self._listen()
                self._enforce()
        except BaseException as problem:
            self._problem = problem
        finally:
            self._wind_up()

    def _wind_up(self) -> None:
        self._closing = True
        try:
            process.retire(self._supervisor, [slot.worker for slot in self._slots])
        finally:
            self._supervisor.release()
            with self._news:
                process.close_descriptor(self._bell)
                process.close_descriptor(self._alarm)
                self.running = ()
                self._finished.clear()
                self.pending = 0
                self._news.notify_all()

    def _take_orders(self) -> None:
        while self._orders:
            order = self._orders.popleft()
            match order:
                case QueuedTask():
                    heapq.heappush(self._queue, order)
                case _Cancel():
                    self._cancel(order.ticket)
                case _NewLimit():
                    self._limit(order)
                case _Reorder():
                    self._reorder(order.priorities)

    def _limit(self, order: _NewLimit) -> None:
        def limited(job: QueuedTask) -> QueuedTask:
            if job.ticket not in order.tickets:
                return job
            return replace(job, task=replace(job.task, limit_s=order.limit_s))

        self._queue = [limited(job) for job in self._queue]  # its order does not change
        for slot in self._slots:
            if slot.job is not None:
                slot.job = limited(slot.job)

    def _reorder(self, priorities: Mapping[int, int]) -> None:
        self._queue = [
            replace(job, priority=priorities.get(job.ticket, job.priority)) for job in self._queue
        ]
        heapq.heapify(self._queue)

    def _cancel(self, ticket: int | None) -> None:
        def meant(job: QueuedTask | None) -> bool:
            return job is not None and ticket in (None, job.ticket)

        now = time.monotonic()
        dropped = [job for job in self._queue if meant(job)]
        self._queue = [job for job in self._queue if not meant(job)]
        heapq.heapify(self._queue)
        killed = [slot for slot in self._slots if meant(slot.job)]
        self._dismiss(killed)
        self._deliver(
            [
                *(
                    TaskOutcome(job.ticket, Kind.CANCELLED, started=now, ended=now)
                    for job in dropped
                ),
                *(self._ended(slot, Kind.CANCELLED, "") for slot in killed),
            ]
        )

    def _staff(self) -> None:
        """Gives up what waits where no worker can be started."""
        if self._mode == "spawn":
            self._start_ahead()
        if self._failed_starts >= _FAILED_STARTS and not self._slots:
            error = with_output("worker processes do not start", self._start_error)
            now = time.monotonic()
            lost, self._queue = self._queue, []
            self._deliver(
                TaskOutcome(job.ticket, Kind.NOT_STARTED, error=error, started=now, ended=now)
                for job in lost
            )

    def _start_ahead(self) -> None:
        """Keeps the pre-started workers at full number: never more than there are cores or tasks,
        however many jobs somebody has asked for."""
        busy = sum(slot.job is not None for slot in self._slots)
        wanted = min(self._jobs, max(available_cores(), busy + len(self._queue)))
        while len(self._slots) < wanted and self._failed_starts < _FAILED_STARTS:
            worker = self._start(lambda: process.spawn(self._supervisor, for_session=False))
            if worker is not None:
                self._slots.append(_Slot(worker, self._free_place(), time.monotonic(), ready=False))

    def _free_place(self) -> int:
        taken = {slot.place for slot in self._slots}
        return next(place for place in range(self._jobs) if place not in taken)

    def _start(self, start: Callable[[], Worker]) -> Worker | None:
        started: list[Worker] = []
        try:
            self._supervisor.run(lambda: started.append(start()))
        except WorkerNotStarted as problem:
            self._failed_starts += 1
            self._start_error = str(problem)
            return None
        return started[0]

    def _assign(self) -> None:
        if self._mode == "fork":
            while self._queue and len(self._slots) < self._jobs:
                if not self._fork(heapq.heappop(self._queue)):
                    break
            return
        for slot in self._slots:
            if self._queue and slot.ready and slot.job is None:
                job = heapq.heappop(self._queue)
                slot.job, slot.since = job, time.monotonic()
                slot.worker.forget_output()
                request = (job.task.memory_bytes, job.payload)
                slot.worker.channel.send(pickle.dumps(request, protocol=5))
                self._announce(job)

    def _fork(self, job: QueuedTask) -> bool:
        """False where there is no room for it now; then it waits for one that runs to end."""
        task = job.task
        since = time.monotonic()
        worker = self._start(
            lambda: process.fork(
                self._supervisor,
                lambda link: child.do_task(link, lambda: (task.call, task.args), task.memory_bytes),
            )
        )
        if worker is None and self._slots:
            heapq.heappush(self._queue, job)
            return False
        if worker is None:
            ended = TaskOutcome(
                job.ticket,
                Kind.NOT_STARTED,
                error=self._start_error,
                started=since,
                ended=time.monotonic(),
            )
            self._deliver([ended])
            return True
        self._slots.append(_Slot(worker, self._free_place(), since, ready=True, job=job))
        self._announce(job)
        return True

    def _announce(self, job: QueuedTask) -> None:
        self.running = tuple(slot.job.ticket for slot in self._by_start() if slot.job)
        if self._on_start is not None:
            self._on_start(job.ticket)

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._alarm, select.POLLIN)
        owners: dict[int, _Slot] = {}
        for slot in self._slots:
            channel = slot.worker.channel
            owners[channel.descriptor] = slot
            poll.register(channel.descriptor, channel.awaited)
            if slot.worker.pidfd is not None:
                owners[slot.worker.pidfd] = slot
                poll.register(slot.worker.pidfd, select.POLLIN)
        heard = {descriptor for descriptor, _ in poll.poll(self._patience_ms())}
        if self._alarm in heard:
            with contextlib.suppress(BlockingIOError):
                os.read(self._alarm, 4096)
        for slot in dict.fromkeys(owners[descriptor] for descriptor in heard - {self._alarm}):
            self._attend(slot)

    def _patience_ms(self) -> float | None:
        if self._orders or self._closing:
            return 0
        active = [slot for slot in self._slots if slot.job or not slot.ready]
        if not active:
            return None
        deadlines = [slot.deadline for slot in active if slot.deadline is not None]
        left = min([TICK_S, *(deadline - time.monotonic() for deadline in deadlines)])
        return max(0.0, left * 1000)

    def _attend(self, slot: _Slot) -> None:
        channel = slot.worker.channel
        channel.flush()
        try:
            while slot in self._slots and (frame := channel.receive()) is not None:
                if not slot.ready:
                    slot.ready = True
                    self._failed_starts = 0
                elif slot.job is not None:
                    self._finish(slot, slot.job, read_report(frame))
                else:
                    raise Garbled  # it answers what nobody asked
        except Garbled:
            self._lose(slot)
            return
        except EOFError:
            slot.worker.await_exit()
            self._lose(slot)
            return
        if slot in self._slots and slot.worker.exited():
            self._lose(slot)

    def _finish(self, slot: _Slot, job: QueuedTask, report: Report) -> None:
        outcome = TaskOutcome(
            ticket=job.ticket,
            kind=Kind.DONE if report.ok else Kind.RAISED,
            value=report.value,
            error="" if report.ok else with_output(report.summary, slot.worker.tail()),
            exception=report.exception,
            seconds=report.seconds,
            started=slot.since,
            ended=time.monotonic(),
            stages=report.stages,
            worker=slot.place,
        )
        slot.job = None
        if self._mode == "fork" or report.left_running:
            self._dismiss([slot], sweep=report.left_running)
        self._deliver([outcome])

    def _lose(self, slot: _Slot) -> None:
        """A worker is gone by itself."""
        self._dismiss([slot])
        words = with_output(describe_exit(slot.worker.returncode), slot.worker.last_words)
        if not slot.ready:
            self._failed_starts += 1
            self._start_error = words
        elif slot.job is not None:
            self._deliver([self._ended(slot, Kind.DIED, words)])

    def _enforce(self) -> None:
        now = time.monotonic()
        late = [slot for slot in self._slots if slot.deadline is not None and slot.deadline <= now]
        if late:
            self._dismiss(late)
        for slot in late:
            if slot.job is not None:
                text = f"was still running after {slot.job.task.limit_s:g} s and was killed"
                error = with_output(text, slot.worker.last_words)
                ended = self._ended(slot, Kind.TIMED_OUT, error)
                self._deliver([replace(ended, limit_s=slot.job.task.limit_s)])
            else:
                self._failed_starts += 1
                self._start_error = f"not ready after {START_LIMIT_S:g} s"
        for slot in self._slots:
            if slot.job is not None:
                slot.worker.bound_output()
                if slot.worker.pidfd is None and slot.worker.exited():
                    self._attend(slot)

    def _dismiss(self, slots: list[_Slot], sweep: bool = True) -> None:
        process.retire(self._supervisor, [slot.worker for slot in slots], sweep)
        self._slots = [slot for slot in self._slots if slot not in slots]

    def _ended(self, slot: _Slot, kind: Kind, error: str) -> TaskOutcome:
        assert slot.job is not None
        now = time.monotonic()
        code = slot.worker.returncode or 0
        return TaskOutcome(
            ticket=slot.job.ticket,
            kind=kind,
            error=error,
            signal=-code if code < 0 else None,
            seconds=now - slot.since,
            started=slot.since,
            ended=now,
            worker=slot.place,
        )

    def _deliver(self, outcomes: Iterable[TaskOutcome]) -> None:
        with self._news:
            self._finished.extend(outcomes)
            self.running = tuple(slot.job.ticket for slot in self._by_start() if slot.job)
            self._news.notify_all()

    def _by_start(self) -> list[_Slot]:
        return sorted(self._slots, key=lambda slot: slot.since)
