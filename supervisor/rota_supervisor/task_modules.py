"""The import of the task modules in the zygote, and the check for threads and connections that workers must not share.

`python -P -m rota_supervisor.task_modules FOLDER MODULE...` replies to a query from `rota_supervisor.code_probe`,
either for the definitions in the modules (for `rota check`) or for the login from a credentials provider. The process
reads the query from a file on its standard input. It writes one JSON object to a separate pipe, because modules may
print to stdout.
"""

import gc
import importlib
import json
import os
import socket
import stat
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import rota
import rota_supervisor
from rota.errors import InvalidArguments
from rota.protocol.scripts import load_script
from rota.server.logins import LoginUnknown, request_login
from rota.tasks.registry import default_registry
from rota_supervisor.code_probe import REPLY_FD, FaultReply, ModulesReply, fault_reply, login_reply
from rota_supervisor.messages import ImportFailed, ScheduledCalls
from rota_supervisor.process import die_with_parent, give_memory_back

_FOR_MANY_TASKS: Final = "rota.worker.concurrent.concurrent_loop"
_HOST_NAME_CODEC: Final = "encodings.idna"
_OWN = tuple(str(Path(module.__file__ or "").parent) for module in (rota, rota_supervisor, importlib))


def make_importable(folders: Iterable[str]) -> None:
    """Insert folders into `sys.path` after the standard library and before installed packages.

    With this order, a user's `selectors.py` does not shadow the standard library's module, but a user's `tasks.py`
    takes precedence over an installed module.
    """
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    at = next((number for number, path in enumerate(sys.path) if path in installed), len(sys.path))
    sys.path[at:at] = [folder for folder in folders if folder not in sys.path]


def import_all(modules: Iterable[str], before_import: Callable[[str], None] = lambda _: None) -> ImportFailed | None:
    """Import the modules in order, and call `before_import` before each of them. Then resolve the type annotations of
    all tasks, which can import more modules. Stop at the first module that cannot be imported, or the first task whose
    annotations cannot be used, and return this failure. Return None if there is none."""
    for module in modules:
        before_import(module)
        try:
            importlib.import_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary to the user's code: SystemExit is a failure too
            return ImportFailed(module, f"{_text_of(error)}{_advice(error, module)}", _location_of(error))
    return _read_annotations()


def _read_annotations() -> ImportFailed | None:
    for task in default_registry:
        try:
            _ = task.typed  # The task caches the value of this property.
        except (TypeError, ModuleNotFoundError) as error:
            code = getattr(task.function, "__code__", None)
            where = "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
            return ImportFailed(task.function.__module__, str(error), where)
    return None


def _text_of(error: BaseException) -> str:
    """Return the class and the message of an error. The location in the message of a SyntaxError is omitted, because
    Rota adds the location itself.
    """
    text = error.msg if isinstance(error, SyntaxError) and error.filename else error
    return f"{type(error).__name__}: {text}"


def _advice(error: BaseException, module: str) -> str:
    # The hint only helps if the missing module is named in `imports`. It would mislead if the application imports the
    # missing module.
    if not isinstance(error, ModuleNotFoundError) or not f"{module}.".startswith(f"{error.name}."):
        return ""
    return f"; modules are searched for in the folder where rota is started ({Path.cwd()}), and in installed packages"


def _location_of(error: BaseException) -> str:
    """Return where in the user's code the error was raised, as `file:line`, or "" if the traceback contains no user
    code.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((*_OWN, "<"))]
    return f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""


def tasks_and_queues() -> list[tuple[str, str]]:
    """Return the registered tasks, each with its queue."""
    return [(task.name, task.options.queue) for task in default_registry]


def declared_schedules() -> list[tuple[str, str]]:
    """Return the name and the definition of each schedule that a registered task declares."""
    found = [schedule for task in default_registry for schedule in task.schedules]
    if not found:
        return []
    from rota.schedules.schedule import encode_schedule  # noqa: PLC0415 - a fleet without schedules does not need it

    return [(schedule.name, encode_schedule(schedule).decode()) for schedule in found]


def misfits(calls: ScheduledCalls) -> Iterator[str]:
    """Yield a message for each schedule of the configuration whose arguments do not fit the parameters of its task.
    `calls`: the task and the arguments of each schedule."""
    for schedule, (name, args, kwargs) in calls.items():
        task = default_registry.get(name)
        try:
            if task is not None:
                task.received(args, kwargs)
        except InvalidArguments as error:
            yield f"schedules.{schedule}.args: {error}"


def warm_up() -> None:
    """Create objects that every worker needs at its start, so that all workers share them.

    A worker that imports a module after the fork writes to pages all over the heap, and so no longer shares these
    pages. With CPython 3.11, each worker would need 0.5 MB for the digest of a script, mostly for starting OpenSSL, and
    1.4 MB for the codec that looks up host names, which the connections of tasks need as well.
    """
    load_script("turn")
    importlib.import_module(_HOST_NAME_CODEC)


def warm_up_for(concurrency: int) -> None:
    """Load the additional modules of concurrent workers (5 MB), so that all workers that are forked from now on share
    them.
    """
    if concurrency > 1 and _FOR_MANY_TASKS not in sys.modules:
        importlib.import_module(_FOR_MANY_TASKS)
        freeze()


def freeze() -> int:
    """Collect garbage, and exempt the remaining objects from later collections, so that workers keep sharing the pages
    of these objects.

    Returns the number of exempted objects. If imports take 100 MB, a worker's private memory stays at 4.4 MB during its
    collections. Without this function, it grows to 71 MB.
    """
    give_memory_back()
    _forget_lookups()
    gc.freeze()
    return gc.get_freeze_count()


def _forget_lookups() -> None:
    """Clear the interpreter's cache of attribute lookups, which holds a reference to each cached name.

    The imports have filled this cache. Each worker would replace its entries, and so write to the pages of the cached
    names all over the heap, which it would no longer share (0.13 MB).
    """
    if sys.version_info >= (3, 13):
        sys._clear_internal_caches()  # noqa: SLF001 - documented
    else:
        sys._clear_type_cache()  # noqa: SLF001 - documented


def warnings(expected_sockets: frozenset[int]) -> Iterator[str]:
    """Yield warnings about threads and connections that make this process unsafe to fork from. `expected_sockets`: the
    descriptors of Rota's own sockets, about which there is no warning."""
    extra = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if extra:
        yield (
            f"a module started threads at import ({', '.join(extra)}): these threads will not exist in the workers; "
            "start them in a function marked @rota.on_worker_start"
        )
    elif (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        yield (
            f"a module left {threads - 1} native threads running at import: these threads will not exist in the "
            "workers; start them in a function marked @rota.on_worker_start"
        )
    for peer in _connected_sockets(expected_sockets):
        yield (
            f"a module opened a connection to {peer} at import: every worker would share it; "
            "open it in a function marked @rota.on_worker_start"
        )


def _connected_sockets(expected: frozenset[int]) -> Iterator[str]:
    for entry in list(Path("/proc/self/fd").iterdir()):
        fd = int(entry.name)
        if fd in expected or not _is_socket(fd):
            continue
        with socket.socket(fileno=os.dup(fd)) as probe:
            try:
                peer = probe.getpeername()
            except OSError:  # The socket is not connected.
                continue
        yield f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "a local socket")


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:  # This descriptor listed the folder, and is closed now.
        return False


def main() -> None:
    """Reply to the query on the command line and standard input, and exit."""

    os.set_inheritable(REPLY_FD, False)
    folder, *modules = sys.argv[1:]
    query = json.load(sys.stdin)
    if not die_with_parent(query["parent"]):
        return
    make_importable([folder])
    reply = _login_of(query["provider"]) if "provider" in query else _found_in(modules, query["calls"])
    os.write(REPLY_FD, json.dumps(reply).encode() + b"\n")
    os._exit(0)  # Exit even if the modules left threads running.


def _login_of(provider: str) -> dict[str, Any] | FaultReply:
    try:
        return login_reply(request_login(provider))
    except LoginUnknown as error:
        return fault_reply(error)


def _found_in(modules: Sequence[str], calls: ScheduledCalls) -> dict[str, Any] | ModulesReply:
    failure = import_all(modules)
    if failure is not None:
        return failure._asdict()
    schedules = [name for name, _ in declared_schedules()]
    return ModulesReply(tasks=tasks_and_queues(), schedules=schedules, misfits=list(misfits(calls)))


if __name__ == "__main__":
    main()
