"""The messages between the master and its children. Each message is a JSON object in one packet, sent over a pair of
SOCK_SEQPACKET sockets.

A packet arrives either complete or not at all, even if several processes write to one socket, as a zygote and its
intermediates do. An intermediate is a short-lived process that the zygote forks, and that forks one worker. In Python,
each message is a named tuple. The name of its class is the `type` in the packet.
"""

import array
import errno
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

# Increase this number whenever a message, the layout of the slots or the set of descriptors changes. If the package is
# upgraded while a master runs, a child with the new version then refuses to start instead of misreading the old
# master's messages.
ABI: Final = 13
MAX_PACKET: Final = 4 << 20
SEND_BUFFER: Final = 1 << 20  # the kernel grants at most twice net.core.wmem_max, by default about 400 kB
# The task, the positional and the keyword arguments of each schedule, by the name of the schedule.
ScheduledCalls = Mapping[str, tuple[str, Sequence[Any], Mapping[str, Any]]]
MAX_SETTINGS: Final = 150_000  # maximum length of a pool's settings, in characters, to fit into the send buffer
TASKS_PER_PACKET: Final = 500
_FD_BYTES: Final = array.array("i").itemsize
_ROOM_FOR_ONE: Final = socket.CMSG_SPACE(_FD_BYTES)
_ROOM_FOR_ALL: Final = socket.CMSG_SPACE(_FD_BYTES * 6)  # enough for all fields of Descriptors


class WrongAbi(Exception):
    """Raised if the other process runs another version of this package."""


class First(NamedTuple):
    """The first message that a spawned child receives."""

    role: str
    node: str  # the name of the master's node
    master_pid: int
    slot: int
    nonce: int
    settings: dict[str, Any]  # the values for the settings class of the role
    along: tuple[str, ...] = ()  # the fields of Descriptors that arrive with this packet, in order
    abi: int = ABI

    def __repr__(self) -> str:  # The settings may contain passwords.
        return f"First(role={self.role!r}, slot={self.slot}, nonce={self.nonce})"


class Descriptors(NamedTuple):
    """The file descriptors that arrive with a `First`."""

    slots: int  # the shared memory of all slots
    bell: int  # the eventfd with which a child wakes the master
    listen: int | None = None  # the exporter's listening socket
    stack: int | None = None  # the child's stack file, unless the master had no descriptor left for it
    login: int | None = None  # the memory with the Redis login, if a provider supplies it
    refused: int | None = None  # the eventfd to write to if the server refuses this login


class ZygoteSettings(NamedTuple):
    """The settings of a zygote."""

    namespace: str  # shown in the process title
    generation: int  # shown in the process title
    imports: tuple[str, ...]  # the modules that define the tasks
    path: tuple[str, ...]  # the folders to add to the import path, after the standard library
    calls: ScheduledCalls  # the calls that the configuration's schedules make; the zygote checks them against its tasks
    log: dict[str, Any]


# Master to zygote


class PoolSettings(NamedTuple):
    """The settings of a pool's workers, as the JSON text that `settings_to_json` returns. They are sent before the
    first request to fork a worker of the pool."""

    name: str
    settings: str

    def __repr__(self) -> str:  # The settings may contain passwords.
        return f"PoolSettings(name={self.name!r})"


class Slots(NamedTuple):
    """A message with the descriptor of the slots' shared memory, which the workers of this zygote need. The message is
    sent at once, but the zygote reads it only after its imports, so that the imported modules cannot access the memory.
    """


class Fork(NamedTuple):
    """A request to fork one worker. If the worker is to have a stack file, the file's descriptor arrives with the
    request."""

    slot: int
    nonce: int
    owner: str
    pool: str


class Bye(NamedTuple):
    """A request to the zygote to exit without ending its workers."""


# Zygote to master


class Importing(NamedTuple):
    """A zygote is about to import this module. If the import hangs or crashes, this is the zygote's last message."""

    module: str


class Imported(NamedTuple):
    """Some of the tasks that the imported modules define. Each task is a pair of its name and its queue. If there are
    many tasks, several of these messages are sent."""

    tasks: tuple[tuple[str, str], ...]


class Scheduled(NamedTuple):
    """A schedule that the modules declare: its name and its definition."""

    schedule: str
    text: str


class Warned(NamedTuple):
    """A problem during the imports that a person should fix."""

    text: str


class Ready(NamedTuple):
    """The zygote has imported all modules and accepts Fork requests. Its objects are exempt from garbage collection
    from now on, so that workers keep sharing their memory."""

    modules: int
    objects: int


class ImportFailed(NamedTuple):
    """A module raised an exception when it was imported. The zygote exits after this message."""

    module: str
    error: str  # one line
    where: str  # the location of the error in the user's code, or "" if it is not known

    def message(self) -> str:
        """Return the error as text for people, with its location in the code."""
        where = f" ({self.where})" if self.where else ""
        return f"module {self.module} cannot be imported: {self.error}{'' if where in self.error else where}"


class Spawned(NamedTuple):
    """A worker has started. The sender is the short-lived process that forked the worker, which exits after this
    message."""

    slot: int
    nonce: int
    pid: int


class ForkFailed(NamedTuple):
    """A requested worker was not started, because the kernel refused to fork a process."""

    slot: int
    nonce: int
    error: str


OfZygote = Importing | Imported | Scheduled | Warned | Ready | ImportFailed | Spawned | ForkFailed
Message = First | Slots | PoolSettings | Fork | Bye | OfZygote
_TYPES: Final[dict[str, type[Message]]] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Encode a message as a packet."""
    return json.dumps({"type": type(message).__name__, **message._asdict()}, separators=(",", ":")).encode()


def decode(packet: bytes) -> Message:
    """Decode a packet. Raises ValueError, KeyError, TypeError or AttributeError if the packet is not valid."""
    raw = json.loads(packet)
    kind = _TYPES[raw.pop("type")]
    return kind(**raw)


def decode_of_zygote(packet: bytes) -> Message:
    """Decode a packet from a zygote. Any user code in the zygote may have written it. Raises the same errors as
    `decode`, and RecursionError."""
    message = decode(packet)
    if not isinstance(message, OfZygote):
        raise TypeError(f"a zygote sends no {type(message).__name__}")
    for (name, kind), value in zip(type(message).__annotations__.items(), message, strict=True):
        if kind in (int, str) and type(value) is not kind:
            raise TypeError(f"{name} is {value!r}")
    tasks = dict(message.tasks) if isinstance(message, Imported) else {}
    if not all(isinstance(text, str) for each in tasks.items() for text in each):
        raise TypeError("tasks and queues must have names")
    return message


def pair() -> tuple[socket.socket, socket.socket]:
    """Create a channel and return both ends, the master's end first. Children do not inherit the ends by default."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return ends


def send(channel: socket.socket, message: Message) -> None:
    """Send one packet through a blocking socket. Raises OSError if the other end is closed."""
    channel.send(encode(message), socket.MSG_NOSIGNAL)


def receive(channel: socket.socket) -> tuple[Message | None, int | None]:
    """Wait for one packet, and return its message and the descriptor that arrived with it. The caller has to close the
    descriptor.

    The message is None if the other side has closed the channel. The descriptor is None if the sender sent none, or if
    this process has too many open descriptors to receive one.
    """
    try:
        packet, ancillary, _, _ = channel.recvmsg(MAX_PACKET, _ROOM_FOR_ONE, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:  # This error is raised only once, if the peer closed without reading everything.
        return receive(channel)
    fds = array.array("i", b"".join(data[:_FD_BYTES] for _, _, data in ancillary))
    return decode(packet) if packet else None, fds[0] if fds else None


def send_along(channel: socket.socket, packet: bytes, fd: int | None) -> None:
    """Send an encoded packet together with a descriptor. Raises OSError, for example `BlockingIOError`.

    The kernel limits the number of descriptors in transit. If the limit has been reached, the packet is sent without
    the descriptor.
    """
    along = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    try:
        channel.sendmsg([packet], along, socket.MSG_NOSIGNAL)
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        channel.send(packet, socket.MSG_NOSIGNAL)


def send_first(channel: socket.socket, first: First, descriptors: Descriptors) -> None:
    """Send the first packet to a child, together with these descriptors. Raises OSError."""
    along = {name: fd for name, fd in descriptors._asdict().items() if fd is not None}
    fds = array.array("i", along.values())
    packet = encode(first._replace(along=tuple(along)))
    channel.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)], socket.MSG_NOSIGNAL)


def receive_first(channel: socket.socket) -> tuple[First, Descriptors]:
    """Wait for the first packet to this child. Raises WrongAbi if the master has another version of this package, and
    EOFError if the master has died."""
    packet, ancillary, _, _ = channel.recvmsg(MAX_PACKET, _ROOM_FOR_ALL, socket.MSG_CMSG_CLOEXEC)
    if not packet:
        raise EOFError("the master exited before it sent anything")
    raw = json.loads(packet)
    if raw.get("abi") != ABI:
        raise WrongAbi(f"the master has ABI {raw.get('abi')}, but this package has ABI {ABI}: restart the master")
    first = decode(packet)
    assert isinstance(first, First)
    fds = array.array("i", b"".join(data for _, _, data in ancillary))
    return first, Descriptors(**dict(zip(first.along, fds, strict=True)))
