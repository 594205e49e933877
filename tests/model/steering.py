"""The state of the model, and everything outside the fleet that changes the state: operators, programs in other
languages, and the server's clock.
"""

from collections.abc import Iterable, Mapping, Sequence

from model.conditions import Conditions, Hours, Rule
from model.ends import Block, End, as_looked_up, unstarted
from model.items import UNKNOWN_QUEUE, LegacyItem, Serving, Share, Task
from model.leases import Leases
from model.places import Places
from model.rotation import Rates, Rotation, is_pattern
from model.turns import Turns, share_in

NONCE_US = 60_000_000


class Steering:
    """The whole model: its state, the calls that operators and masters make, and the items that other programs push."""

    def __init__(self, lease_us: int, run_record: str, servings: Iterable[Serving] = ()) -> None:
        """Create the model. `run_record` is the record that workers send about each run. `servings` has the tiers of
        each pool. The model needs them to rotate queues that belong to patterns.
        """
        self.run_record = run_record
        tiers = {tier for serving in servings for tier in serving if any(is_pattern(share.queue) for share in tier)}
        self.places = Places(turns=[Turns(tier) for tier in tiers])
        self.leases = Leases(lease_us)
        self.rotation = Rotation()
        self.rates = Rates()
        self.paused: set[str] = set()
        self.closed: dict[str, int] = {}
        self.published: dict[str, tuple[int, str]] = {}
        self.conditions = Conditions(self.places)
        self.served: dict[str, int] = {}
        self.nonces: dict[str, tuple[list[str], int]] = {}
        self.lives = 0

    # The server

    def keys_expire(self, now: int) -> tuple[list[str], list[str], list[str]]:
        """Delete the nonces, unique keys and groups that have expired by `now`, and return their names."""
        nonces = [nonce for nonce, (_, until) in self.nonces.items() if until <= now]
        keys = [key for key, (_, until) in self.places.holders.items() if 0 < until <= now]
        for nonce in nonces:
            del self.nonces[nonce]
        for key in keys:
            del self.places.holders[key]
        return nonces, keys, self.places.dependents.expire(now)

    # Other languages

    def push_item(self, bare: LegacyItem, queue: str, lane: str) -> None:
        self.places.lanes[queue, lane].append(bare)

    def schedule_item(self, bare: LegacyItem, due: int) -> None:
        self.places.scheduled[bare.text] = (due, bare)

    # People

    def state(self, task_id: str) -> str:
        task = self.places.tasks.get(task_id)
        if not task:
            return self.places.memory.how(task_id) or ("done" if task_id in self.places.results else "unknown")
        if task_id in self.places.scheduled:
            return "scheduled"
        if task_id in self.places.dead:
            return "dead"
        if self.places.holder_of(task_id, self.leases.expires):
            return "running"
        return "cancelled" if task.cancelled else "ready"

    def cancel(self, now: int, task_id: str) -> str:
        self.places.at(now)
        task = self.places.tasks.get(task_id)
        if not task:
            return "unknown"
        if task_id in self.places.dead:
            return "dead"
        if task_id in self.places.scheduled:
            due, _ = self.places.scheduled.pop(task_id)
            self.places.counts[f"delayed:{task.queue}"] -= 1
            past = self.places.end(task, "cancelled")
            self._note_waiting(task, past, due)
            self.places.dependents.ended(self.places, "cancelled", [task_id], [task_id])
            return "cancelled"
        was_cancelled, task.cancelled = task.cancelled, True
        if self.places.holder_of(task_id, self.leases.expires):
            return "running"
        self.places.free_key(task)
        if not was_cancelled:
            records = self.places.attempt_records.get(task_id)
            self._note_waiting(task, f"\n{records}" if records else "")
            self.places.dependents.ended(self.places, "cancelled", [task_id])
        return "cancelled"

    def _note_waiting(self, task: Task, past: str = "", due: int | None = None) -> None:
        """Store the end of a task that was cancelled while it waited. If its entry is in a lane, the entry stays there
        until a claim removes it.
        """
        self.places.results.pop(task.id, None)
        found = as_looked_up(task, due)
        self.places.news.add_end("cancelled", found, "-", unstarted(task.body))
        end = End(found.text, unstarted(task.body) + past)
        self.places.memory.note(Block("cancelled", self.places.now, "-", [end]))

    def pause(self, now: int, queue: str) -> bool:
        """Pause a queue. Return False if it was already paused."""
        was_paused = queue in self.paused
        self.paused.add(queue)
        if not was_paused:
            self.closed.setdefault(queue, now)
        return not was_paused

    def resume(self, queue: str) -> bool:
        was_paused = queue in self.paused
        self.paused.discard(queue)
        self.closed.pop(queue, None)
        if self.places.entries(queue):
            self.places.mark(queue)
        self.places.look_at(queue)
        return was_paused

    def purge(self, now: int, queue: str) -> int:
        self.places.at(now)
        items = self.places.entries(queue)
        self.places.lanes[queue, "delayed"], self.places.lanes[queue, "ready"] = [], []
        self.places.marked.discard(queue)
        for item in items:
            if isinstance(item, LegacyItem):
                continue
            if item.is_tombstone:
                self.places.remove_tombstone(item)
            elif item.cancelled:
                self.places.end(item, "purged")
            else:
                self.places.end_alone(item, "purged", "-", unstarted(item.body))
        return len(items)

    def revive(self, now: int, ids: Sequence[str]) -> int:
        self.places.at(now)
        dead = [task_id for task_id in dict.fromkeys(ids) if task_id in self.places.dead]
        for task_id in dead:
            self.places.revive(self.places.tasks[task_id])
        return len(dead)

    def purge_dead(self, ids: Sequence[str]) -> int:
        dead = [task_id for task_id in dict.fromkeys(ids) if task_id in self.places.dead]
        for task_id in dead:
            self.places.forget(task_id)
        return len(dead)

    def trim(self, now: int, max_age: int, max_count: int) -> int:
        by_age = sorted(self.places.dead, key=lambda task_id: (self.places.dead[task_id], task_id))
        old = [task_id for task_id in by_age if self.places.dead[task_id] <= now - max_age]
        surplus = by_age[len(old) :][: max(0, len(by_age) - len(old) - max_count)]
        return self.purge_dead(old + surplus)

    def restore(self, now: int, ids: Sequence[str]) -> list[str]:
        """Restore tasks that have no entry. Return the status for each id. The caller must not pass the id of a task
        that is in a lane.
        """
        self.places.at(now)
        return [self._restore(task_id) for task_id in ids]

    def _restore(self, task_id: str) -> str:
        task = self.places.tasks.get(task_id)
        is_known = task_id in self.places.scheduled or task_id in self.places.dead
        if not task or is_known or self.places.holder_of(task_id, self.leases.expires):
            return "placed"
        if task.cancelled:
            self.places.end(task, "cancelled")
            self.places.dependents.ended(self.places, "cancelled", [task_id])
            return "ended"
        return "dead" if self.places.restore(task).queue == UNKNOWN_QUEUE else "restored"

    # Masters

    def check_conditions(
        self, now: int, ttl_us: int, conditions: Mapping[str, Hours | Rule]
    ) -> set[tuple[str, int, str, bool]]:
        """Define conditions, and return the closed queues. Each row of the result has the queue, the time in us for
        which it is closed, the condition, and whether the condition fails.
        """
        self.places.at(now)
        defined = self.conditions.defined
        defined.update((name, (now + ttl_us, each)) for name, each in conditions.items())
        any_known = bool(defined)
        for name in [name for name, (until, _) in defined.items() if until < now]:
            del defined[name]
        queues = {*self.closed, *self.paused, *(self.places.marked | self.published.keys() if any_known else ())}
        return {(queue, *row) for queue in queues if (row := self._look_at(queue))}

    def _look_at(self, queue: str) -> tuple[int, str, bool] | None:
        by, fails = self.closed_by(queue)
        if by is None or (by and not fails and not self.places.entries(queue)):
            self.closed.pop(queue, None)
            return None
        self.closed[queue] = min(self.closed.get(queue, self.places.now), self.places.now)
        return self.places.now - self.closed[queue], by, fails

    def closed_by(self, queue: str) -> tuple[str | None, bool]:
        """Return the condition that closes a queue, "" if the queue is paused, or None if the queue is open. The second
        value is whether the condition fails.
        """
        if queue in self.paused:
            return "", False
        name = self._condition_of(queue)
        verdict = self.conditions.verdict(queue, name) if name else None
        return (name, verdict.fails) if verdict and not verdict.is_open else (None, False)

    def _condition_of(self, queue: str) -> str:
        """Return the condition that is announced for the queue. If there is none, return the condition for the queue's
        pattern. Return "" if neither has a condition.
        """
        patterns = [share.pattern for turns in self.places.turns if (share := share_in(turns.tier, queue))]
        known = [self.published[name] for name in (queue, *patterns) if name in self.published]
        return next((name for until, name in known if until > self.places.now), "")

    def announce(
        self, now: int, queues: Sequence[str], ttl_us: int, ends: int, events: int, *, shares: Sequence[Share] = ()
    ) -> None:
        self.served.update(dict.fromkeys(queues, now + ttl_us))
        self.places.known.update(queue for queue in queues if not is_pattern(queue))
        self.published.update((share.queue, (now + ttl_us, share.condition)) for share in shares)
        self.places.memory.keep_at_most(ends)
        self.places.news.is_wanted = bool(events)
