"""The transitions by which people step in, a part of the typed store: see `rota.protocol.store`."""

from collections.abc import Sequence

from rota.protocol import replies
from rota.protocol.command import Command, Transitions
from rota.protocol.wire import pack, text_of


class Operations(Transitions):
    """What people do about the tasks and queues of one namespace."""

    def cancel(self, task_id: str, kill_after_ms: int | None = None) -> Command[replies.CancelWord]:
        """End a waiting task; have a running one told, and its process killed if it has not ended so much later."""
        kill_after = "-" if kill_after_ms is None else kill_after_ms
        return self._command("cancel", pack((task_id, kill_after)), replies.parse_cancel)

    def pause(self, queue: str) -> Command[int]:
        """Stop claims from a queue; 1 when it was not paused before."""
        return self._command("pause", pack((queue,)), int)

    def resume(self, queue: str) -> Command[int]:
        """Let claims go on and ring; 1 when the queue was paused."""
        return self._command("resume", pack((queue,)), int)

    def purge(self, queue: str) -> Command[replies.Bounded]:
        """End up to BATCH ready tasks of a queue."""
        return self._command("purge", pack((queue,)), replies.parse_bounded)

    def purge_dead(self, ids: Sequence[str]) -> Command[int]:
        """Forget up to BATCH dead tasks; returns how many there were."""
        return self._command("purge_dead", pack(ids), int)

    def revive(self, ids: Sequence[str]) -> Command[int]:
        """Put up to BATCH dead tasks back in their lanes, their failures forgiven; returns how many."""
        return self._command("revive", pack(ids), int)

    def trim(self, max_age_us: int, max_count: int) -> Command[replies.Bounded]:
        """Forget up to BATCH dead tasks that are too old or too many."""
        return self._command("trim", pack((max_age_us, max_count)), replies.parse_bounded)

    def heal(self, cursor: str) -> Command[str]:
        """Recount one portion; begin with cursor "0" and go on with what each returns until it is "0" again."""
        return self._command("heal", pack((cursor,)), text_of)

    def restore(self, ids: Sequence[str]) -> Command[list[replies.RestoreWord]]:
        """Put back up to BATCH live tasks that were found to stand nowhere."""
        return self._command("restore", pack(ids), replies.parse_restored)
