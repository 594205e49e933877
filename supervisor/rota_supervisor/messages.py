"""The messages between the master and its children, as one JSON object per packet over a SOCK_SEQPACKET pair.

A packet arrives either complete or not at all, even if several processes write to one socket, as a zygote and its
intermediates do. Each message is a named tuple. Its `type` in the packet is the name of the class.
"""

import array
import errno
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

# Raise this number with every change of a message, the slots or the descriptors. If the package is upgraded while a
# master runs, a child with the new version then refuses to start instead of misreading the old master's messages.
ABI: Final = 13
MAX_PACKET: Final = 4 << 20
SEND_BUFFER: Final = 1 << 20  # the kernel grants at most twice net.core.wmem_max (about 400 kB by default)
# The task, args and kwargs of each schedule, by the schedule's name.
ScheduledCalls = Mapping[str, tuple[str, Sequence[Any], Mapping[str, Any]]]
MAX_SETTINGS: Final = 150_000  # the most characters in the settings of a pool, so that they fit into the send buffer
TASKS_PER_PACKET: Final = 500
_FD_BYTES: Final = array.array("i").itemsize
_ROOM_FOR_ONE: Final = socket.CMSG_SPACE(_FD_BYTES)
_ROOM_FOR_ALL: Final = socket.CMSG_SPACE(_FD_BYTES * 6)  # the space for all fields of Descriptors


class WrongAbi(Exception):
    """Raised if the other side runs another version of this package."""


class First(NamedTuple):
    """The first packet to a spawned child."""

    role: str
    node: str  # the name of the master process
    master_pid: int
    slot: int
    nonce: int
    settings: dict[str, Any]  # the fields of the role's settings class
    along: tuple[str, ...] = ()  # the fields of Descriptors that arrive with this packet, in order
    abi: int = ABI

    def __repr__(self) -> str:  # The settings may contain passwords.
        return f"First(role={self.role!r}, slot={self.slot}, nonce={self.nonce})"


class Descriptors(NamedTuple):
    """The descriptors that arrive with a `First`."""

    slots: int  # the memory of all slots
    bell: int  # the master's bell, an eventfd
    listen: int | None = None  # the exporter's listening socket
    stack: int | None = None  # the stack file, if the master had a descriptor left for it
    login: int | None = None  # the memory with the password, if it comes from a provider
    refused: int | None = None  # the bell to ring if the server refuses this password


class ZygoteSettings(NamedTuple):
    """The settings of a zygote."""

    namespace: str  # for the process title
    generation: int  # for the process title
    imports: tuple[str, ...]  # the modules that define the tasks
    path: tuple[str, ...]  # the folders to add to the import path, after the standard library
    calls: ScheduledCalls  # the calls of the configuration's schedules, which are compared with the tasks
    log: dict[str, Any]


# Master to zygote


class PoolSettings(NamedTuple):
    """The settings of a pool's workers, as written by `settings_to_json`. They are sent before the pool's first
    Fork."""

    name: str
    settings: str

    def __repr__(self) -> str:  # The settings may contain passwords.
        return f"PoolSettings(name={self.name!r})"


class Slots(NamedTuple):
    """A message with the descriptor of the slots' memory, for future workers. It is sent at once, but the zygote reads
    it only after its imports."""


class Fork(NamedTuple):
    """A request to fork one worker. If the worker has a stack file, its descriptor arrives with the request."""

    slot: int
    nonce: int
    owner: str
    pool: str


class Bye(NamedTuple):
    """A request to exit without ending the workers."""


# Zygote to master


class Importing(NamedTuple):
    """The zygote is about to import this module. If the import hangs or crashes, this is its last message."""

    module: str


class Imported(NamedTuple):
    """Some of the tasks that the modules define, as pairs of a task's name and its queue."""

    tasks: tuple[tuple[str, str], ...]


class Scheduled(NamedTuple):
    """A schedule that the modules declare, with its name and its definition."""

    schedule: str
    text: str


class Warned(NamedTuple):
    """A problem at import that a person should fix."""

    text: str


class Ready(NamedTuple):
    """All modules are imported and frozen, and the zygote accepts Fork requests."""

    modules: int
    objects: int


class ImportFailed(NamedTuple):
    """A module raised an exception at import. The zygote exits after this."""

    module: str
    error: str  # one line
    where: str  # the location in the user's code, or "" for none

    def message(self) -> str:
        """Return the text for people."""
        where = f" ({self.where})" if self.where else ""
        return f"module {self.module} cannot be imported: {self.error}{'' if where in self.error else where}"


class Spawned(NamedTuple):
    """A worker has started. Its intermediate sends this before it exits."""

    slot: int
    nonce: int
    pid: int


class ForkFailed(NamedTuple):
    """The kernel refused to fork."""

    slot: int
    nonce: int
    error: str


OfZygote = Importing | Imported | Scheduled | Warned | Ready | ImportFailed | Spawned | ForkFailed
Message = First | Slots | PoolSettings | Fork | Bye | OfZygote
_TYPES: Final[dict[str, type[Message]]] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Return the packet of a message."""
    return json.dumps({"type": type(message).__name__, **message._asdict()}, separators=(",", ":")).encode()


def decode(packet: bytes) -> Message:
    """Return the message in a packet. Raises ValueError, KeyError, TypeError or AttributeError if the packet is not
    valid."""
    raw = json.loads(packet)
    kind = _TYPES[raw.pop("type")]
    return kind(**raw)


def decode_of_zygote(packet: bytes) -> Message:
    """Return the message in a packet from a zygote, which a user's module may have written. Raises the errors of
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
    """Return both ends of a channel, the master's end first. Children do not inherit them by default."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return ends


def send(channel: socket.socket, message: Message) -> None:
    """Send one packet through a blocking socket. Raises OSError if the other side has closed the channel."""
    channel.send(encode(message), socket.MSG_NOSIGNAL)


def receive(channel: socket.socket) -> tuple[Message | None, int | None]:
    """Wait for one packet, and return its message and the descriptor that arrived with it. The caller has to close the
    descriptor.

    The message is None if the other side has closed the channel. The descriptor is None if the sender sent none, or if
    this process could not open another one.
    """
    try:
        packet, ancillary, _, _ = channel.recvmsg(MAX_PACKET, _ROOM_FOR_ONE, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:  # Raised once if the peer closed without reading everything.
        return receive(channel)
    fds = array.array("i", b"".join(data[:_FD_BYTES] for _, _, data in ancillary))
    return decode(packet) if packet else None, fds[0] if fds else None


def send_along(channel: socket.socket, packet: bytes, fd: int | None) -> None:
    """Send an encoded packet together with a descriptor. Raises OSError, for example `BlockingIOError`.

    The kernel limits the number of descriptors in transit. Beyond that limit, the packet is sent without its
    descriptor.
    """
    along = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    try:
        channel.sendmsg([packet], along, socket.MSG_NOSIGNAL)
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        channel.send(packet, socket.MSG_NOSIGNAL)


def send_first(channel: socket.socket, first: First, descriptors: Descriptors) -> None:
    """Send a child its first packet with these descriptors. Raises OSError."""
    along = {name: fd for name, fd in descriptors._asdict().items() if fd is not None}
    fds = array.array("i", along.values())
    packet = encode(first._replace(along=tuple(along)))
    channel.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)], socket.MSG_NOSIGNAL)


def receive_first(channel: socket.socket) -> tuple[First, Descriptors]:
    """Wait in a child for its first packet. Raises WrongAbi if the master has another version, and EOFError if the
    master has died."""
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
