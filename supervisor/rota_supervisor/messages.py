"""What master and children tell each other: one JSON object a packet, over a SOCK_SEQPACKET pair.

A packet is whole or not there at all, also when several processes write to one socket, as a zygote and its
intermediates do. Each message is a named tuple here; its `type` on the wire is the class's name.
"""

import array
import errno
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

# Raised with every change of a message, of the slots or of the descriptors: a child of another version
# of the package, upgraded under a live master, refuses to start instead of misreading it.
ABI: Final = 10
MAX_PACKET: Final = 4 << 20
SEND_BUFFER: Final = 1 << 20  # asked for; the kernel grants up to twice net.core.wmem_max (about 400 kB by default)
ScheduledCalls = Mapping[str, tuple[str, Sequence[Any], Mapping[str, Any]]]  # by schedule: its task, args and kwargs
MAX_SETTINGS: Final = 150_000  # characters of a pool's settings: they fit, escaped, into what the kernel always grants
TASKS_A_PACKET: Final = 500
_FD_BYTES: Final = array.array("i").itemsize
_ROOM_FOR_ONE: Final = socket.CMSG_SPACE(_FD_BYTES)
_ROOM_FOR_ALL: Final = socket.CMSG_SPACE(_FD_BYTES * 6)  # as many as Descriptors has


class WrongAbi(Exception):
    """The other side runs another version of this package."""


class First(NamedTuple):
    """The first packet to a spawned child. `node`: the name of its master's life. `settings` has the shape of the
    role's settings class. `along`: the names of the Descriptors that come along, in their order."""

    role: str
    node: str
    master_pid: int
    slot: int
    nonce: int
    settings: dict[str, Any]
    along: tuple[str, ...] = ()
    abi: int = ABI

    def __repr__(self) -> str:  # passwords are in its settings
        return f"First(role={self.role!r}, slot={self.slot}, nonce={self.nonce})"


class Descriptors(NamedTuple):
    """What comes along with a First: the memory of all slots; the master's bell, an eventfd; an exporter's listening
    socket; a stack file, when the master had a descriptor left for one; where a provider gives the password, the memory
    that has it, and the bell to ring when it is refused."""

    slots: int
    bell: int
    listen: int | None = None
    stack: int | None = None
    login: int | None = None
    refused: int | None = None


class ZygoteSettings(NamedTuple):
    """`imports`: the modules with the tasks. `path`: folders that become importable, after the standard library.
    `calls`: what the schedules of the configuration call, by their names, to be compared with the tasks. `namespace`
    and `generation` are for its title."""

    namespace: str
    generation: int
    imports: tuple[str, ...]
    path: tuple[str, ...]
    calls: ScheduledCalls
    log: dict[str, Any]


# Master to zygote


class PoolSettings(NamedTuple):
    """The settings of a pool's workers, as `settings_to_json` writes them; sent before its first Fork."""

    name: str
    settings: str

    def __repr__(self) -> str:  # as above
        return f"PoolSettings(name={self.name!r})"


class Slots(NamedTuple):
    """The descriptor of all slots comes along, for the workers to be. Sent at once, read after the import."""


class Fork(NamedTuple):
    """Please: one worker. The descriptor of its stack file comes along, when it has one."""

    slot: int
    nonce: int
    owner: str
    pool: str


class Bye(NamedTuple):
    """Leave in peace: the workers stay."""


# Zygote to master


class Importing(NamedTuple):
    """It is about to import this module, which may be the last that is heard of it."""

    module: str


class Imported(NamedTuple):
    """Some of the tasks that the modules define, as pairs of a task's name and its queue."""

    tasks: tuple[tuple[str, str], ...]


class Scheduled(NamedTuple):
    """A schedule that the modules declare: its name, and what it says."""

    schedule: str
    text: str


class Warned(NamedTuple):
    """Something at import that a person should mend."""

    text: str


class Ready(NamedTuple):
    """All is imported and frozen; forks can be asked for."""

    modules: int
    objects: int


class ImportFailed(NamedTuple):
    """A module raised: which, the error in one line, and the place in the user's code, "" for none. The zygote leaves
    after this."""

    module: str
    error: str
    where: str

    def told(self) -> str:
        """What people are told of it."""
        return f"module {self.module} cannot be imported: {self.error}" + (f" ({self.where})" if self.where else "")


class Spawned(NamedTuple):
    """A worker is there, sent by its intermediate before that exits."""

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
    """The packet of a message."""
    return json.dumps({"type": type(message).__name__, **message._asdict()}, separators=(",", ":")).encode()


def decode(packet: bytes) -> Message:
    """The message of a packet. Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
    raw = json.loads(packet)
    kind = _TYPES[raw.pop("type")]
    return kind(**raw)


def decode_of_zygote(packet: bytes) -> Message:
    """The message of a packet from a zygote, whose modules may have written it. Raises as `decode`, RecursionError."""
    message = decode(packet)
    if not isinstance(message, OfZygote):
        raise TypeError(f"a zygote sends no {type(message).__name__}")
    for (name, kind), value in zip(type(message).__annotations__.items(), message, strict=True):
        if kind in (int, str) and type(value) is not kind:
            raise TypeError(f"{name} is {value!r}")
    tasks = dict(message.tasks) if isinstance(message, Imported) else {}
    if not all(isinstance(text, str) for each in tasks.items() for text in each):
        raise TypeError("tasks and queues have names")
    return message


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a channel, the first one for the master; nobody inherits either by itself."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return ends


def send(channel: socket.socket, message: Message) -> None:
    """Send one packet from a blocking side. Raises OSError when the other side is gone."""
    channel.send(encode(message), socket.MSG_NOSIGNAL)


def receive(channel: socket.socket) -> tuple[Message | None, int | None]:
    """Wait for one packet; None when the other side is gone. With it the descriptor that came along, for the caller to
    close; none came when the sender had none, or this process could take no more."""
    try:
        packet, ancillary, _, _ = channel.recvmsg(MAX_PACKET, _ROOM_FOR_ONE, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:  # said once, when it left without reading all: what it had sent is still there
        return receive(channel)
    fds = array.array("i", b"".join(data[:_FD_BYTES] for _, _, data in ancillary))
    return decode(packet) if packet else None, fds[0] if fds else None


def send_along(channel: socket.socket, packet: bytes, fd: int | None) -> None:
    """Send an encoded packet, and a descriptor along with it. Raises OSError, as `BlockingIOError`.

    The kernel bounds how many descriptors may be under way; beyond that the packet goes without.
    """
    along = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    try:
        channel.sendmsg([packet], along, socket.MSG_NOSIGNAL)
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        channel.send(packet, socket.MSG_NOSIGNAL)


def send_first(channel: socket.socket, first: First, descriptors: Descriptors) -> None:
    """Send a child its first packet, and these along. Raises OSError."""
    along = {name: fd for name, fd in descriptors._asdict().items() if fd is not None}
    fds = array.array("i", along.values())
    packet = encode(first._replace(along=tuple(along)))
    channel.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)], socket.MSG_NOSIGNAL)


def receive_first(channel: socket.socket) -> tuple[First, Descriptors]:
    """Wait for a child's first packet. Raises WrongAbi for another version's, EOFError when the master is gone."""
    packet, ancillary, _, _ = channel.recvmsg(MAX_PACKET, _ROOM_FOR_ALL, socket.MSG_CMSG_CLOEXEC)
    if not packet:
        raise EOFError("the master left before it said anything")
    raw = json.loads(packet)
    if raw.get("abi") != ABI:
        raise WrongAbi(f"the master speaks abi {raw.get('abi')}, this package {ABI}: restart the master")
    first = decode(packet)
    assert isinstance(first, First)
    fds = array.array("i", b"".join(data for _, _, data in ancillary))
    return first, Descriptors(**dict(zip(first.along, fds, strict=True)))
