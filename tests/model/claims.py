"""The model of a claim: which queues a turn claims from, and which entries it takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from model.conditions import Conditions, Verdict
from model.items import LegacyItem, Serving, Share, Task
from model.places import Places
from model.rotation import Domain, Rates, Rotation, is_pattern
from model.turns import SHUT, Turns, share_in


@dataclass(frozen=True)
class TurnRequest:
    """The arguments of a turn that claims entries."""

    owner: str
    serving: Serving
    limit: int  # the maximum number of entries to claim
    limits: Mapping[str, int]  # the limits of those queues and patterns that have their own limit
    holding: int = 0  # the number of entries that the owner already holds
    picks: int = 1  # how often a queue is chosen; if this is more than 1, each choice claims a single entry
    # The entry that must run alone, and for which the owner is finishing its other tasks, or "" if there is none.
    quarantined: str = ""
    claim_by: int = 0  # the time in us after which nothing is claimed, or 0 for no limit


@dataclass
class Claimed:
    """The result of a claim."""

    tasks: list[Task] = field(default_factory=list)
    # Entries of cancelled tasks that this claim has removed from their lanes.
    dropped: list[str] = field(default_factory=list)
    # The time in us after which a rate or a condition must be checked again, or 0 if there is none to check.
    wait: int = 0
    quarantined: str = ""  # the entry that must run alone; no other entry was claimed

    @property
    def claims(self) -> list[tuple[str, str]]:
        """The claimed entries, each with the body that is stored for it."""
        return [(task.text, task.stored_body) for task in self.tasks]

    def follow(self, one: "Claimed") -> None:
        """Add what the next choice of a queue has claimed. Its `wait` and its `quarantined` entry replace the earlier
        ones.
        """
        self.tasks += one.tasks
        self.dropped += one.dropped
        self.wait, self.quarantined = one.wait, one.quarantined

    def look_again(self, after: int) -> None:
        self.wait = min(after, self.wait or after)


@dataclass
class Claims:
    """The parts of the model that the claim of one turn reads and changes. `verdicts` has the results of the conditions
    that have already been evaluated.
    """

    places: Places
    rotation: Rotation
    rates: Rates
    paused: set[str]
    conditions: Conditions
    closed: dict[str, int]
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def claim(self, request: TurnRequest) -> Claimed:
        claimed = self._claim_awaited(request) if request.quarantined else Claimed()
        one = request if request.picks == 1 else replace(request, limit=1, limits={})
        while len(claimed.tasks) < request.picks and not claimed.quarantined:
            before = len(claimed.tasks)
            claimed.follow(self._claim_once(replace(one, holding=request.holding + before)))
            if len(claimed.tasks) == before:
                break
            self.verdicts.clear()
        if len(claimed.tasks) >= request.picks or claimed.quarantined:
            claimed.wait = 0  # a worker does not wait if it has got all its entries, or must run one entry alone
        for task in claimed.tasks:  # the events for the starts come after all other events of the claim
            self.places.news.add("started", task, request.owner, begun=1, lag_us=self.places.now - task.due)
        return claimed

    def _claim_once(self, request: TurnRequest) -> Claimed:
        claimed = Claimed()
        self._claim_in_order(request, claimed)
        if not claimed.tasks and not claimed.quarantined and self._mark_unmarked(request.serving):
            self._claim_in_order(request, claimed)
        return claimed

    def _claim_awaited(self, request: TurnRequest) -> Claimed:
        """Claim the entry that must run alone and that an earlier turn has named as `quarantined`. Since then, the
        owner has finished its other tasks. Claim nothing if the entry is no longer the first of its queue, or if its
        queue may not start a task now.
        """
        claimed, queue = Claimed(), request.quarantined.split(" ")[1]
        items = self.places.lanes[queue, "delayed"] or self.places.lanes[queue, "ready"]
        is_first = bool(items) and isinstance(items[0], Task) and items[0].text == request.quarantined
        for tier in request.serving:
            share = share_in(tier, queue)
            if is_first and share and not self._shut_until(share):
                domain = frozenset(share.queue for share in tier)
                self._claim_from(domain, share, replace(request, limit=1, limits={}), claimed)
        return claimed

    def _mark_unmarked(self, serving: Serving) -> bool:
        """Mark the queues that have entries but no mark, and return whether there were any. Claims skip queues without
        a mark, and a plain push by another program sets no mark. This method is called only if a claim has found
        nothing else.
        """
        queues = {share.queue for tier in serving for share in tier}
        unmarked = {queue for queue in queues if self.places.entries(queue)} - self.places.marked
        for queue in unmarked:
            self.places.mark(queue)
        return bool(unmarked)

    def _claim_in_order(self, request: TurnRequest, claimed: Claimed) -> None:
        for tier in request.serving:
            domain = frozenset(share.queue for share in tier)
            if any(map(is_pattern, domain)):
                if self._claim_in_turn(tier, request, claimed):
                    return
                continue
            candidates = [share for share in tier if self._may_serve(share, claimed)]
            while candidates:
                share = self.rotation.first(domain, candidates)
                candidates.remove(share)
                if self._claim_from(domain, share, request, claimed) or claimed.quarantined:
                    return

    def _claim_in_turn(self, tier: tuple[Share, ...], request: TurnRequest, claimed: Claimed) -> bool:
        """Claim from a tier that has patterns. An empty queue loses its place in the rotation. A queue that may not
        start any task is shut until a later time.
        """
        turns = next(each for each in self.places.turns if each.tier == tier)
        turns.open_due_queues(self.places.now)
        turns.place_marked(self.rotation)
        for queue in turns.in_order(self.rotation):
            share = share_in(tier, queue)
            assert share
            if until := self._shut_until(share):
                turns.placed[queue] = until
                continue
            is_claimed = self._claim_from(turns.domain, share, request, claimed)
            if not self.places.entries(queue):
                del turns.placed[queue]
            if is_claimed or claimed.quarantined:
                return True
        self._note_opening(turns, claimed)
        return False

    def _note_opening(self, turns: Turns, claimed: Claimed) -> None:
        for until, queue in turns.next_to_open(self.rotation):
            if self.places.entries(queue):
                claimed.look_again(until - self.places.now)
                return
            del turns.placed[queue]

    def _may_serve(self, share: Share, claimed: Claimed) -> bool:
        if share.queue not in self.places.marked:
            return False
        until = self._shut_until(share)
        if until and until < SHUT and self.places.entries(share.queue):
            claimed.look_again(until - self.places.now)
        return not until

    def _shut_until(self, share: Share) -> int:
        """Return the time in us before which no entry of this queue may start, or 0 if an entry may start now."""
        now = self.places.now
        if share.queue in self.paused:
            return SHUT
        if share.interval_us:
            self.rates.set_right(share, now)
        if self.starts(share) < 1:
            wait = self.rates.wait(share, now) if share.interval_us else 0
            return now + wait if wait > 0 else SHUT
        if not share.condition or self.verdict(share).is_open:
            return 0
        return now + self.verdict(share).after

    def verdict(self, share: Share) -> Verdict:
        """Return the verdict of the queue's condition. The condition is evaluated at most once per choice of a
        queue.
        """
        if share.queue not in self.verdicts:
            self.verdicts[share.queue] = self.conditions.verdict(share.queue, share.condition)
        return self.verdicts[share.queue]

    def starts(self, share: Share) -> float:
        """Return how many more tasks the cap and the rate of a queue allow to start."""
        allowed = math.inf
        if share.cap:
            allowed = share.cap - max(0, self.places.counts[f"running:{share.queue}"])
        if share.interval_us:
            allowed = min(allowed, self.rates.allowed(share, self.places.now))
        return allowed

    def _most(self, share: Share, request: TurnRequest) -> int:
        """Return how many tasks to claim from this queue. The request may set a limit for the queue in `limits`. This
        limit is ignored if a cap, a rate, or a condition that uses counts already limits the starts.
        """
        if share.cap or share.interval_us or (share.condition and self.verdict(share).by_counts):
            return int(min(max(1, request.limit), self.starts(share)))
        return max(1, request.limits.get(share.pattern or share.queue, request.limit))

    def _claim_from(self, domain: Domain, share: Share, request: TurnRequest, claimed: Claimed) -> bool:
        taken = self._take(share.queue, self._most(share, request), request.holding, claimed)
        if not self.places.entries(share.queue):
            self.places.marked.discard(share.queue)
        if not taken:
            return False
        for task in taken:
            self.places.hold(request.owner, task)
            claimed.tasks.append(task)
        self.rotation.charge(domain, share, len(taken))
        if share.condition:
            self.closed.pop(share.queue, None)
        if share.interval_us:
            self.rates.spend(share, self.places.now, len(taken))
        return True

    def _take(self, queue: str, most: int, holding: int, claimed: Claimed) -> list[Task]:
        """Remove up to `most` entries from the lanes, first from the delayed lane, and return their tasks. A task that
        has crashed or was lost is taken alone, and only if the owner holds nothing else.
        """
        taken: list[Task] = []
        for lane, kind in (("delayed", "d"), ("ready", "i")):
            items = self.places.lanes[queue, lane]
            while items and len(taken) < most:
                item = items[0]
                if isinstance(item, Task) and item.is_tombstone:
                    items.pop(0)
                    claimed.dropped.append(item.text)
                    self.places.remove_tombstone(item)
                    continue
                if isinstance(item, Task) and item.cancelled:
                    items.pop(0)
                    claimed.dropped.append(item.text)
                    self.places.end(item, "cancelled")
                    continue
                if isinstance(item, Task) and item.suspicious:
                    claimed.quarantined = item.text
                    if taken or holding:
                        return taken
                items.pop(0)
                task = self.places.adopt(item, queue, kind, self.places.now) if isinstance(item, LegacyItem) else item
                taken.append(task)
                if task.suspicious:
                    return taken
        return taken
