"""What a client warns of, each once, in the name of the line of the application that called it."""

import inspect
import warnings
from asyncio.events import _get_running_loop
from collections.abc import Sequence
from pathlib import Path

from rota.errors import BlockingCall, RotaWarning, UnknownTask, UnseenNamespace, UnservedQueue
from rota.foreign_names import nearest
from rota.protocol.command import Steps, ask
from rota.protocol.new_tasks import Enqueued, NewTask
from rota.protocol.store import Store

_PACKAGE = str(Path(__file__).parent.parent)


class ClientWarnings:
    """The warnings of one client, of the server at `place`. `to_check`: names that were noted, and not checked yet."""

    def __init__(self, namespace: str, place: str) -> None:
        self._namespace = namespace
        self._place = place
        self._given: set[tuple[type[RotaWarning], str]] = set()
        self._names: set[str] = set()
        self.to_check: list[str] = []

    def of_answer(self, task: NewTask, word: Enqueued) -> None:
        """Warn of what the server said of a task that it took."""
        if word.unserved and self._is_new(UnservedQueue, task.queue):
            self._warn(
                UnservedQueue,
                f"no running fleet serves queue {task.queue!r}: its tasks wait until one does "
                "(is it in `tiers` of rota.toml, and the fleet running?)",
                task.queue,
            )
        elif word.unseen and self._is_new(UnseenNamespace):
            self._warn(
                UnseenNamespace,
                f"no fleet was ever seen in namespace {self._namespace!r} on {self._place}: tasks wait until "
                "one is started there (are these `namespace` and `redis_url` of its rota.toml?)",
            )

    def note(self, task: NewTask) -> None:
        """Have the name of a task that was taken checked, unless it was before."""
        if task.foreign and task.foreign not in self._names:
            self._names.add(task.foreign)
            self.to_check.append(task.foreign)

    def names_to_check(self) -> list[str]:
        """The names that were noted since the last call."""
        names, self.to_check = self.to_check, []
        return names

    def of_names(self, names: Sequence[str], known: frozenset[str] | None) -> None:
        """Warn of names that are not `known` to the fleets; None: nobody can say."""
        for name in names:
            if known is not None and name not in known:
                near = nearest(name, known)
                self._warn(
                    UnknownTask,
                    f"no running fleet has a task named {name!r}{near or ':'} its calls will be dead when workers take "
                    "them (is the module that declares it in `imports` of rota.toml?)",
                    name,
                )

    def of_blocking(self) -> None:
        """Warn when this thread runs an event loop, which a call that blocks holds up."""
        if _get_running_loop() is not None and self._is_new(BlockingCall):
            self._warn(
                BlockingCall,
                "a call of rota.Client waits for the server, and holds up the event loop that runs in this thread: "
                "`await task.aenqueue(...)` and `rota.AsyncClient` do not",
            )

    def _is_new(self, category: type[RotaWarning], of: str = "") -> bool:
        return (category, of) not in self._given

    def _warn(self, category: type[RotaWarning], message: str, of: str = "") -> None:
        warnings.warn(message, category, stacklevel=_frames_of_ours())
        self._given.add((category, of))  # not where it was made an error: that is raised each time


def known_names(store: Store) -> Steps[frozenset[str] | None]:
    """The names of the tasks that fleets declare; None if no fleet runs, one does not say, or a consumer runs, which
    may take any task."""
    nodes = [node.tasks for node in (yield from ask(store.nodes())) if node.is_alive]
    named = [tasks for tasks in nodes if tasks is not None]
    if not nodes or len(named) < len(nodes) or (yield from ask(store.consumers())).total:
        return None
    return frozenset().union(*named)


def _frames_of_ours() -> int:
    # A warning should name the application's line, however many of our frames the call went through.
    level = 0
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    return level
