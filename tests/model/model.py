"""A model of the protocol in plain Python. It shares no code with the scripts.

Each method represents one call of a script at Redis time `now`. The method changes the model and returns the reply that
is expected from the script. To repeat or delay a call of a script, a test calls the method again or later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from model.claims import Claimed, Claims, TurnRequest
from model.ends import NO_RUN, Block, End
from model.items import UNKNOWN_QUEUE, LegacyItem, New, Serving, Task, marked_text
from model.news import reason_in
from model.places import AT_MOST_ONCE, FAILURE
from model.results import Promoted, Reaped, Settled, TurnResult
from model.rotation import is_pattern
from model.schedules import Schedules
from model.steering import NONCE_US
from model.sweeping import Sweeping
from model.throttling import Throttling
from model.turns import share_in

CRASH_LIMIT = 3
LOSS_LIMIT = 5
GARBAGE = '{"reason":"garbage"}'
LOSS = "{}"
"""The record of a loss if the poller gives no record."""

Outcome = tuple[str, int, str]
"""A verb, the delay of a retry in microseconds, and a text. The text is the result to keep, the record of the failure,
or the death record.
"""


class Model(Schedules, Sweeping, Throttling):
    """The contents that Redis must have for the whole fleet."""

    # Producing

    def enqueue(self, now: int, nonce: str, tasks: Sequence[New]) -> list[str]:
        self.places.at(now)
        statuses = self.nonces[nonce][0] if nonce in self.nonces else [self._enqueue(new) for new in tasks]
        self.nonces[nonce] = (statuses, now + NONCE_US)
        return statuses

    def _enqueue(self, new: New) -> str:
        if new.id in self.places.tasks and not self._waits_cancelled(new.id):
            return "duplicate"
        holder, _ = self.places.holders.get(new.unique_key, ("", 0))
        if holder in self.places.tasks:
            return f"held {holder}"
        self.places.accept(new)
        served = [queue for queue, until in self.served.items() if until > self.places.now]
        has_pattern = any(share_in(turns.tier, new.queue) for turns in self.places.turns)
        return "unserved" if served and new.queue not in served and not has_pattern else "ok"

    def _waits_cancelled(self, task_id: str) -> bool:
        """Whether a task was cancelled while it waited. An enqueue may reuse the id of such a task."""
        is_cancelled = self.places.tasks[task_id].cancelled
        return is_cancelled and not self.places.holder_of(task_id, self.leases.expires)

    def promote(self, now: int, limit: int) -> Promoted:
        self.places.at(now)
        due = sorted((at, member) for member, (at, _) in self.places.scheduled.items() if at <= now)[:limit]
        moved: dict[str, int] = {}
        buried, left_out = 0, []
        for _, member in due:
            queue = self._promote(member)
            buried += queue == UNKNOWN_QUEUE
            if not queue:
                left_out.append(member.rpartition(":")[0])
            elif queue != UNKNOWN_QUEUE:
                moved[queue] = moved.get(queue, 0) + 1
        return Promoted(moved, buried, self.next_due(), len(due) >= limit, left_out)

    def _promote(self, member: str) -> str:
        """Promote this member of the delayed set, and return its queue. Return "" if the member is an occurrence that
        must not run, because an earlier occurrence of its schedule is still live.
        """
        due, item = self.places.scheduled.pop(member)
        if isinstance(item, Task) and self.is_left_out(item, due):
            return ""
        if isinstance(item, Task):
            self.places.counts[f"delayed:{item.queue}"] -= 1
            self.places.ready(item, due)
            self.places.news.add("ready", item)
            return item.queue
        task = self.places.adopt(item, item.queue or UNKNOWN_QUEUE, "d", due)
        if item.queue:
            self.places.ready(task, due)
        else:
            self.places.bury(task, GARBAGE)
            self.places.known.add(task.queue)
        return task.queue

    def adopt_scheduled(self, now: int, members: Sequence[str]) -> tuple[int, list[str]]:
        """Adopt legacy items of the delayed set. Return the number of items that became tasks, and the queues of the
        invalid items, which became dead at once.
        """
        self.places.at(now)
        adopted, dead = 0, []
        for member in dict.fromkeys(members):
            due, item = self.places.scheduled.get(member, (0, None))
            if not isinstance(item, LegacyItem):
                continue
            del self.places.scheduled[member]
            task = self.places.adopt(item, item.queue or UNKNOWN_QUEUE, "d", due)
            self.places.known.add(task.queue)
            if item.queue:
                self.places.schedule(task, due)
                adopted += 1
            else:
                self.places.bury(task, GARBAGE)
                dead.append(task.queue)
        return adopted, dead

    def legacy_items(self) -> int:
        """Return the number of legacy items that are waiting until they are due."""
        return sum(isinstance(item, LegacyItem) for _, item in self.places.scheduled.values())

    def next_due(self) -> int | None:
        return min((due for due, _ in self.places.scheduled.values()), default=None)

    # Working

    def turn(
        self, now: int, request: TurnRequest, held: Sequence[str] | None, outcomes: Sequence[tuple[str, Outcome]]
    ) -> TurnResult:
        self.places.at(now)
        settled = self._settle(request.owner, outcomes, request.serving)
        self._look_at_queues_with_room(settled, request.serving)
        answer = TurnResult("ok", settled.stale)
        if request.owner not in self.leases.expires:
            answer.status = "lost"
            return answer
        holds = self.places.inflight.get(request.owner, [])
        unnamed = [(task.text, task.stored_body) for task in holds if held is not None and task.id not in held]
        if unnamed:
            answer.status, answer.claims = "again", unnamed
        elif request.limit > 0 and 0 < request.claim_by <= now:
            answer.status = "more"
        elif request.limit > 0:
            self._claim(request, holds, answer)
        return answer

    def _claim(self, request: TurnRequest, holds: list[Task], answer: TurnResult) -> None:
        suspicious = [task.text for task in holds if task.suspicious]
        if suspicious:
            claimed = Claimed(quarantined=suspicious[-1])
        else:
            claimed = self.claims().claim(replace(request, holding=len(holds)))
        answer.claims, answer.dropped, answer.wait = claimed.claims, claimed.dropped, claimed.wait
        taken = len(claimed.claims) if request.picks > 1 else min(len(claimed.claims), 1)
        if claimed.quarantined and taken < request.picks:
            answer.status, answer.quarantined = "quarantine", claimed.quarantined
        elif (
            request.picks == 1
            and claimed.tasks
            and not claimed.quarantined
            and self._is_backlogged(request, claimed.tasks[0].queue)
        ):
            answer.status = "backlogged"

    def _is_backlogged(self, request: TurnRequest, queue: str) -> bool:
        """Whether the reply has the status `backlogged`. Three conditions must be true. The claim must leave at least
        four entries for each owner in the lane that is served next. The queue must be in the highest tier. No queue of
        that tier may have a cap, a rate or a condition.
        """
        beside = request.serving[0]
        is_bounded = any(share.cap or share.interval_us or share.condition for share in beside)
        left = len(self.places.lanes[queue, "delayed"] or self.places.lanes[queue, "ready"])
        return bool(share_in(beside, queue)) and not is_bounded and left >= 4 * len(self.leases.expires)

    def claims(self) -> Claims:
        """Return a model of the next claim, which reads and changes the state of this model."""
        return Claims(self.places, self.rotation, self.rates, self.paused, self.conditions, self.closed)

    def _look_at_queues_with_room(self, settled: Settled, serving: Serving) -> None:
        for queue, released in settled.released.items():
            share = next((share for tier in serving if (share := share_in(tier, queue))), None)
            if released or (share and (share.cap or share.condition)):
                self.places.look_if_any(queue)

    def _settle(self, owner: str, outcomes: Sequence[tuple[str, Outcome]], serving: Serving) -> Settled:
        settled = Settled()
        done: list[End] = []
        for text, outcome in outcomes:
            task = self.places.let_go(owner, text)
            if not task:
                settled.stale.append(text)
                continue
            is_release = outcome[0] == "release" and not task.is_tombstone
            settled.released[task.queue] += is_release
            if is_release:
                self._credit(serving, task.queue)
            if outcome[0] in {"retry", "release"} and not task.cancelled:
                # The start mark is no longer needed, because the outcome is known.
                task.flag = task.flag.replace("b", "") or "-"
            if outcome[0] == "done" and not task.is_tombstone:
                done.append(self._done(task, outcome, owner))
            else:
                self._go_on(task, outcome, owner)
        ids = [end.id for end in done]
        self.places.dependents.ended(self.places, "done", ids, ids)
        self.places.memory.note(Block("done", self.places.now, owner, done))
        return settled

    def _done(self, task: Task, outcome: Outcome, owner: str) -> End:
        _, _, result = outcome
        self.places.news.add_end("done", task, owner, self.run_record)
        if result:
            self.places.results[task.id] = result
        return End(task.text, self.run_record + self.places.end(task, "done"))

    def _go_on(self, task: Task, outcome: Outcome, owner: str) -> None:
        verb, delay, kept = outcome
        if task.is_tombstone:
            self.places.remove_tombstone(task)
        elif verb in {"expired", "cancelled"}:
            self.places.end_alone(task, verb, owner, self.run_record)
        elif task.cancelled:
            self.places.end_alone(task, "cancelled", owner, NO_RUN)
        elif verb == "dead":
            task.failures += 1
            self.places.bury(task, kept, owner)
        elif verb == "retry":
            task.failures += 1
            task.kind = "r"
            if kept:
                self.places.keep_attempt_record(task, FAILURE, kept)
            self.places.schedule(task, self.places.now + delay)
            self.places.news.add("retried", task, owner, due_us=self.places.now + delay)
        else:
            task.releases += 1
            if self.places.give_back(task):
                self.places.news.add("released", task, owner)

    def _credit(self, serving: Serving, queue: str) -> None:
        """Set back the virtual time of a queue in fair rotation, because a claimed entry was returned to it. The first
        tier that serves the queue is the one that is corrected. If this tier has patterns, nothing is corrected once
        the rotation has forgotten the queue.
        """
        for tier in serving:
            share, domain = share_in(tier, queue), frozenset(one.queue for one in tier)
            if share:
                if (domain, queue) in self.rotation.times or not any(map(is_pattern, domain)):
                    self.rotation.credit(domain, share, 1)
                return

    def _settle_and_look(self, owner: str, outcomes: Sequence[tuple[str, Outcome]], serving: Serving) -> list[str]:
        """Settle outcomes as a master does. Mark the queues to which tasks were returned, so that the next claims check
        these queues. Return the entries whose outcomes were stale.
        """
        settled = self._settle(owner, outcomes, serving)
        for queue in settled.released:
            self.places.look_if_any(queue)
        return settled.stale

    def return_prefetched(
        self, now: int, owner: str, running: str, outcomes: Sequence[tuple[str, Outcome]], serving: Serving
    ) -> int:
        """Settle finished tasks. If the owner still holds the running entry, return the entries behind it to their
        queues. Return the number of returned entries.
        """
        self.places.at(now)
        self._settle_and_look(owner, outcomes, serving)
        held = self.places.inflight.get(owner, [])
        texts = [task.text for task in held]
        running = running if running in texts else marked_text(running)
        unstarted = held[texts.index(running) + 1 :] if running in texts else []
        for task in reversed(unstarted):
            self.places.let_go(owner, task.text)
            self._credit(serving, task.queue)
            self._go_on(task, ("release", 0, ""), owner)
        for task in unstarted:
            self.places.look_if_any(task.queue)
        return len(unstarted)

    def mark_started(self, owner: str, text: str) -> str:
        """Set the start mark of a task that may be started at most once. Return the new entry, or "" if the owner no
        longer holds the entry.
        """
        return self.places.mark_started(owner, text) if owner in self.leases.expires else ""

    # Owning

    def register(self, now: int, places: Sequence[str]) -> list[str]:
        owners = []
        for place in places:
            self.lives += 1
            owners.append(f"{place}:{self.lives}")
            self.leases.begin(owners[-1], now)
        return owners

    def renew(self, now: int, owners: Sequence[str]) -> tuple[list[str], set[str]]:
        """Renew the leases of these owners. Return the owners that are no longer registered, and the entries of
        cancelled tasks that the remaining owners hold.
        """
        lost = [owner for owner in owners if not self.leases.renew(owner, now)]
        held = [task for owner in owners if owner not in lost for task in self.places.inflight.get(owner, [])]
        cancelled = [task.id for task in self.places.tasks.values() if task.cancelled]
        return lost, {task.text for task in held if task.id in cancelled}

    def adopt_orphans(self, now: int, owners: Sequence[str]) -> int:
        orphans = [owner for owner in owners if self.places.inflight.get(owner) and owner not in self.leases.expires]
        for owner in orphans:
            self.leases.begin(owner, now)
        if orphans:
            self.places.recount_running(self.leases.expires)
        return len(orphans)

    def reap_expired(self, now: int, owner: str) -> Reaped:
        if not self.leases.may_be_reaped(owner, now):
            return Reaped(alive=True)
        return self._reap(now, owner, None, Reaped(), ())

    def reap_exited(
        self,
        now: int,
        owner: str,
        ran: Mapping[str, str],
        outcomes: Sequence[tuple[str, Outcome]],
        serving: Serving,
    ) -> Reaped:
        self.places.at(now)
        stale = self._settle_and_look(owner, outcomes, serving)
        return self._reap(now, owner, ran, Reaped(settled=len(outcomes) - len(stale), stale=stale), serving)

    def _reap(self, now: int, owner: str, ran: Mapping[str, str] | None, reaped: Reaped, serving: Serving) -> Reaped:
        """Reap an owner. The keys of `ran` are the ids of the tasks that were running. Each value is the record of the
        crash, or "" if the task is not to blame. If the node was lost, `ran` is None, and the loss is counted for every
        task.
        """
        self.places.at(now)
        held = list(self.places.inflight.get(owner, []))
        for task in reversed(held):
            self.places.let_go(owner, task.text)
            if task.is_tombstone:
                self.places.remove_tombstone(task)
                continue
            record, last = self._charge(task, ran, serving)
            if task.cancelled:
                self.places.end_alone(task, "cancelled", owner, NO_RUN)
            elif task.is_marked_started:
                reaped.dead.insert(0, task.text)
                self.places.bury(task, AT_MOST_ONCE, owner)
            elif last:
                assert record
                reaped.dead.insert(0, task.text)
                self.places.bury(task, record[1], owner)
            else:
                if record:
                    self.places.keep_attempt_record(task, *record)
                if record or task.id in (ran or {}):
                    task.kind, task.due, task.ready = "c", now, now
                self.places.give_back(task)
                self.places.news.add("recovered", task, owner, reason=reason_in(record[1] if record else "{}"))
                reaped.requeued.insert(0, task.text)
        for queue in {task.queue for task in held} | {share.queue for tier in serving for share in tier}:
            self.places.look_if_any(queue)
        self.places.inflight.pop(owner, None)
        self.leases.expires.pop(owner, None)
        return reaped

    def _charge(
        self, task: Task, ran: Mapping[str, str] | None, serving: Serving
    ) -> tuple[tuple[str, str] | None, bool]:
        """Count a crash, a loss or a release of a task whose owner has ended. Return a pair: the mark and the record of
        the crash or loss, or None for a release, and whether the crash or loss makes the task dead.
        """
        if ran is None:
            task.losses += 1
            return ("L", LOSS), task.losses >= LOSS_LIMIT
        if ran.get(task.id):
            task.crashes += 1
            is_only_node = sum(map(bool, ran.values())) == 1
            return ("O", ran[task.id]), is_only_node and task.crashes >= CRASH_LIMIT
        task.releases += 1
        self._credit(serving, task.queue)
        return None, False
