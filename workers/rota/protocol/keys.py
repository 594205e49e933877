"""Every key of the protocol, as a function: nothing else spells one.

All keys of a fleet share the hash tag `{namespace}`, so that a script's computed keys are on the
shard of the one key it is given (KEYS[1], always the `tasks` hash; Lua cuts the prefix from it).
"""

from dataclasses import dataclass
from typing import Final

PROTOCOL_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace."""

    namespace: str

    def _key(self, rest: str) -> str:
        return f"{{{self.namespace}}}:{rest}"

    @property
    def tasks(self) -> str:
        return self._key("tasks")

    def ready_lane(self, queue: str) -> str:
        return self._key(f"queue:{queue}")

    def delayed_lane(self, queue: str) -> str:
        return self._key(f"queue:{queue}-delayed")

    @property
    def delayed(self) -> str:
        return self._key("delayed")

    @property
    def tickets(self) -> str:
        return self._key("tickets")

    @property
    def former(self) -> str:
        return self._key("former")

    def doorbell(self, queue: str) -> str:
        return self._key(f"doorbell:{queue}")

    @property
    def poller_doorbell(self) -> str:
        return self._key("doorbell")

    @property
    def ready(self) -> str:
        return self._key("ready")

    @property
    def queues(self) -> str:
        return self._key("queues")

    @property
    def owners(self) -> str:
        return self._key("owners")

    @property
    def lives(self) -> str:
        return self._key("lives")

    def inflight(self, owner: str) -> str:
        return self._key(f"inflight:{owner}")

    @property
    def rotation(self) -> str:
        return self._key("rotation")

    @property
    def rates(self) -> str:
        return self._key("rates")

    @property
    def counts(self) -> str:
        return self._key("counts")

    @property
    def healing(self) -> str:
        return self._key("healing")

    @property
    def dead(self) -> str:
        return self._key("dead")

    @property
    def epitaphs(self) -> str:
        return self._key("epitaphs")

    def unique(self, unique_key: str) -> str:
        return self._key(f"unique:{unique_key}")

    @property
    def unique_keys(self) -> str:
        return self._key("keys")

    @property
    def paused(self) -> str:
        return self._key("paused")

    @property
    def served(self) -> str:
        return self._key("served")

    @property
    def totals(self) -> str:
        return self._key("totals")

    @property
    def pulse(self) -> str:
        return self._key("pulse")

    def sent(self, nonce: str) -> str:
        return self._key(f"sent:{nonce}")

    @property
    def nodes(self) -> str:
        return self._key("nodes")

    def result(self, task_id: str) -> str:
        return self._key(f"result:{task_id}")

    @property
    def meta(self) -> str:
        return self._key("meta")
