"""What a claim takes: which queue, how many, which entries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from model.conditions import Conditions, Verdict
from model.items import Bare, Serving, Share, Task
from model.places import Places
from model.rotation import Domain, Rates, Rotation, is_pattern
from model.turns import SHUT, Turns, share_in


@dataclass(frozen=True)
class Ask:
    """What an owner that holds `holding` others asks for: `limit`, or what `limits` say of a queue; or with several
    `picks` as many turns of one. `alone`: the entry for which it empties its hands. `claim_by`: from when on it claims
    nothing, 0 for never."""

    owner: str
    serving: Serving
    limit: int
    limits: Mapping[str, int]
    holding: int = 0
    picks: int = 1
    alone: str = ""
    claim_by: int = 0


@dataclass
class Claimed:
    """Tasks, what was dropped, and how long until a rate or a condition is to be looked at again. `alone`: the entry
    that has to run so, and after or before which nothing was claimed."""

    tasks: list[Task] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    wait: int = 0
    alone: str = ""

    @property
    def claims(self) -> list[tuple[str, str]]:
        """Entries with their bodies as they were told."""
        return [(task.text, task.told_body) for task in self.tasks]

    def follow(self, one: "Claimed") -> None:
        """Another turn was made."""
        self.tasks += one.tasks
        self.dropped += one.dropped
        self.wait, self.alone = one.wait, one.alone

    def look_again(self, after: int) -> None:
        self.wait = min(after, self.wait or after)


@dataclass
class Claims:
    """The claim of one turn."""

    places: Places
    rotation: Rotation
    rates: Rates
    paused: set[str]
    conditions: Conditions
    closed: dict[str, int]
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def claim(self, ask: Ask) -> Claimed:
        claimed = self._claim_awaited(ask) if ask.alone else Claimed()
        one = ask if ask.picks == 1 else replace(ask, limit=1, limits={})
        while len(claimed.tasks) < ask.picks and not claimed.alone:
            before = len(claimed.tasks)
            claimed.follow(self._claim_once(replace(one, holding=ask.holding + before)))
            if len(claimed.tasks) == before:
                break
            self.verdicts.clear()
        if len(claimed.tasks) >= ask.picks or claimed.alone:
            claimed.wait = 0  # a worker that is full, or that has to run an entry alone, waits for nothing else
        for task in claimed.tasks:  # of all at once, behind what came to be known at their claim
            self.places.news.tell("started", task, ask.owner, begun=1, lag_us=self.places.now - task.due)
        return claimed

    def _claim_once(self, ask: Ask) -> Claimed:
        claimed = Claimed()
        self._claim_in_order(ask, claimed)
        if not claimed.tasks and not claimed.alone and self._mark_unmarked(ask.serving):
            self._claim_in_order(ask, claimed)
        return claimed

    def _claim_awaited(self, ask: Ask) -> Claimed:
        """While it is the first of its queue nothing else is claimed."""
        claimed, queue = Claimed(), ask.alone.split(" ")[1]
        items = self.places.lanes[queue, "delayed"] or self.places.lanes[queue, "ready"]
        is_first = bool(items) and isinstance(items[0], Task) and items[0].text == ask.alone
        for tier in ask.serving:
            share = share_in(tier, queue)
            if is_first and share and not self._shut_until(share):
                domain = frozenset(share.queue for share in tier)
                self._claim_from(domain, share, replace(ask, limit=1, limits={}), claimed)
        return claimed

    def _mark_unmarked(self, serving: Serving) -> bool:
        """Bare pushes mark nothing; they are looked for when there is nothing else."""
        queues = {share.queue for tier in serving for share in tier}
        unmarked = {queue for queue in queues if self.places.entries(queue)} - self.places.marked
        for queue in unmarked:
            self.places.mark(queue)
        return bool(unmarked)

    def _claim_in_order(self, ask: Ask, claimed: Claimed) -> None:
        for tier in ask.serving:
            domain = frozenset(share.queue for share in tier)
            if any(map(is_pattern, domain)):
                if self._claim_in_turn(tier, ask, claimed):
                    return
                continue
            candidates = [share for share in tier if self._may_serve(share, claimed)]
            while candidates:
                share = self.rotation.first(domain, candidates)
                candidates.remove(share)
                if self._claim_from(domain, share, ask, claimed) or claimed.alone:
                    return

    def _claim_in_turn(self, tier: tuple[Share, ...], ask: Ask, claimed: Claimed) -> bool:
        """From queues of patterns; one that is found empty loses its place, one that may start nothing is shut."""
        turns = next(each for each in self.places.turns if each.tier == tier)
        turns.open_those_whose_time_has_come(self.places.now)
        turns.place_marked(self.rotation)
        for queue in turns.in_order(self.rotation):
            share = share_in(tier, queue)
            assert share
            if until := self._shut_until(share):
                turns.placed[queue] = until
                continue
            is_claimed = self._claim_from(turns.domain, share, ask, claimed)
            if not self.places.entries(queue):
                del turns.placed[queue]
            if is_claimed or claimed.alone:
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
        """Until when no entry of this queue may start, 0 when one may."""
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
        """Asked for once a call."""
        if share.queue not in self.verdicts:
            self.verdicts[share.queue] = self.conditions.verdict(share.queue, share.condition)
        return self.verdicts[share.queue]

    def starts(self, share: Share) -> float:
        """How many may start by its cap and its rate."""
        allowed = math.inf
        if share.cap:
            allowed = share.cap - max(0, self.places.counts[f"running:{share.queue}"])
        if share.interval_us:
            allowed = min(allowed, self.rates.allowed(share, self.places.now))
        return allowed

    def _most(self, share: Share, ask: Ask) -> int:
        """How many to claim. Where starts are bounded, a limit of the queue's own says nothing."""
        if share.cap or share.interval_us or (share.condition and self.verdict(share).by_counts):
            return int(min(max(1, ask.limit), self.starts(share)))
        return max(1, ask.limits.get(share.pattern or share.queue, ask.limit))

    def _claim_from(self, domain: Domain, share: Share, ask: Ask, claimed: Claimed) -> bool:
        taken = self._take(share.queue, self._most(share, ask), ask.holding, claimed)
        if not self.places.entries(share.queue):
            self.places.marked.discard(share.queue)
        if not taken:
            return False
        for task in taken:
            self.places.hold(ask.owner, task)
            claimed.tasks.append(task)
        self.rotation.charge(domain, share, len(taken))
        if share.condition:
            self.closed.pop(share.queue, None)
        if share.interval_us:
            self.rates.spend(share, self.places.now, len(taken))
        return True

    def _take(self, queue: str, most: int, holding: int, claimed: Claimed) -> list[Task]:
        """The delayed lane first, a suspicious task alone: with others in hand not at all."""
        taken: list[Task] = []
        for lane, kind in (("delayed", "d"), ("ready", "i")):
            items = self.places.lanes[queue, lane]
            while items and len(taken) < most:
                item = items[0]
                if isinstance(item, Task) and item.is_shell:
                    items.pop(0)
                    claimed.dropped.append(item.text)
                    self.places.shell_is_gone(item)
                    continue
                if isinstance(item, Task) and item.cancelled:
                    items.pop(0)
                    claimed.dropped.append(item.text)
                    self.places.end(item, "cancelled")
                    continue
                if isinstance(item, Task) and item.suspicious:
                    claimed.alone = item.text
                    if taken or holding:
                        return taken
                items.pop(0)
                task = self.places.adopt(item, queue, kind, self.places.now) if isinstance(item, Bare) else item
                taken.append(task)
                if task.suspicious:
                    return taken
        return taken
