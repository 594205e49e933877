"""The exporter's listening socket. The master keeps the socket open, so that no scrape is refused while the exporter is
being replaced."""

import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from rota_supervisor.config.errors import Fault
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.master_events import AddressPrepared, Event, ListeningAt

BACKLOG: Final = 1024  # number of connections that may wait to be accepted; further clients try again after 1 s
NEXT_PORTS: Final = 20  # number of ports to try after the default one, which another fleet on this machine may use


class _Bound(NamedTuple):
    """An address from the configuration, and the socket that is bound to it."""

    wanted: str = ""
    listener: socket.socket | None = None

    def close(self) -> None:
        if self.listener is not None:
            self.listener.close()


class ListenSocket:
    """The exporter's listening socket. While a reload is under way, there can be a second socket, which is already
    bound to the address in the new configuration.

    When an address has been prepared or put into use, the callback `happened` receives an event for the core.
    """

    def __init__(self, happened: Callable[[Event], object] = lambda _: None) -> None:
        self._happened = happened
        self._addresses = {"localhost": "127.0.0.1"}
        self._instead: dict[str, str] = {}  # maps each configured address that was taken to the address used instead
        self._used = _Bound()
        self._prepared = _Bound()

    def prepare_address(self, effect: do.PrepareAddress) -> None:
        """Bind the address for later use. If the effect has `only_try`, only check that the address can be bound."""
        faults: tuple[Fault, ...] = ()
        try:
            (self.probe if effect.only_try else self.prepare)(effect.listen)
        except Failure as error:
            faults = tuple(Fault("http.listen", text.removeprefix("http.listen = ")) for text in error.messages)
        self._happened(AddressPrepared(effect.ticket, faults))

    def listen_at(self, effect: do.ListenAt) -> None:
        """Listen on the address. If that is not possible, keep the current address. This can happen if a reload is
        undone after another program has taken the earlier address."""
        error = ""
        try:
            self.use(effect.listen)
        except Failure as failure:
            error = str(failure)
        self._happened(ListeningAt(self.address, error))

    def drop_prepared(self, _effect: do.DropPreparedAddress | None = None) -> None:
        """Close the socket of an address that will not be used. Otherwise clients could connect to the socket and would
        wait forever."""
        self._prepared.close()
        self._prepared = _Bound()

    def start(self, wanted: str, *, or_next: bool = False) -> None:
        """Listen on the address at the start of the master, and report it. Raises Failure.

        A host name is resolved only here, because a lookup can take half a minute and would later block the master's
        loop. `or_next`: whether to try the ports after the wanted one if another program uses it.
        """
        host, _, _ = wanted.rpartition(":")
        if host and not _is_number(host) and host not in self._addresses:
            self._addresses[host] = _look_up(host, wanted)
        try:
            self.use(wanted)
        except Failure as taken:
            if not or_next or taken.code is not ExitCode.TAKEN:
                raise
            self._use_next(wanted, taken)
        self._happened(ListeningAt(self.address))

    def _use_next(self, wanted: str, taken: Failure) -> None:
        """Listen on the first free port after the port in `wanted`. Raises `taken` if none is free.

        A reload with the same address keeps this port.
        """
        host, _, port = wanted.rpartition(":")
        for other in range(int(port) + 1, int(port) + 1 + NEXT_PORTS):
            self._instead[wanted] = f"{host}:{other}"
            with contextlib.suppress(Failure):
                self.use(wanted)
                return
        raise taken

    def prepare(self, wanted: str) -> None:
        """Bind an address for later use. Do nothing if the address is "" or already in use by this fleet. Raises
        Failure."""
        self.drop_prepared()
        if wanted not in ("", self._used.wanted):
            self._prepared = _Bound(wanted, self._bind(wanted))

    def probe(self, wanted: str) -> None:
        """Check that `prepare` would succeed, without keeping the address bound. Raises Failure if not."""
        if wanted not in ("", self._used.wanted, self._prepared.wanted):
            self._bind(wanted).close()

    def use(self, wanted: str) -> None:
        """Listen on the address from now on.

        If the address is "", listen on none. An exporter that still uses the old address has its own copy of the old
        socket. Raises Failure if the address has not been prepared and cannot be bound.
        """
        if wanted == self._used.wanted:
            return
        if wanted not in ("", self._prepared.wanted):
            self.prepare(wanted)
        self._used.close()
        self._used = _Bound()
        if wanted:
            self._used = self._prepared
            self._prepared = _Bound()

    @property
    def fd(self) -> int | None:
        """The descriptor that the next exporter inherits, or None if there is no socket."""
        return None if self._used.listener is None else self._used.listener.fileno()

    @property
    def warning(self) -> str:
        """A warning if the port differs from the configured port, or ""."""
        if self._used.wanted not in self._instead:
            return ""
        return (
            f"{self._used.wanted} is already in use, so this fleet listens at {self.address}. To use a fixed port, "
            "set http.listen"
        )

    @property
    def address(self) -> str:
        """The actual `host:port`, or "" if there is no socket. If the configured port is 0, this is the port that the
        kernel chose."""
        if self._used.listener is None:
            return ""
        host, port = self._used.listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _bind(self, wanted: str) -> socket.socket:
        host, _, port = self._instead.get(wanted, wanted).rpartition(":")
        address = host if _is_number(host) else self._addresses.get(host)
        if address is None:
            raise Failure(
                ExitCode.CONFIG,
                f"http.listen = {wanted!r}: a host name is resolved only at the start: use a numeric address, or "
                "stop the master and start it again",
            )
        return bind(wanted, address.strip("[]"), port)

    def close(self) -> None:
        """Close both sockets."""
        self.drop_prepared()
        self._used.close()


def _is_number(host: str) -> bool:
    bare = host.strip("[]")
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in bare else socket.AF_INET, bare)
    except OSError:
        return False
    return True


def _look_up(host: str, listen: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(listen, error) from None


def bind(listen: str, address: str, port: str) -> socket.socket:
    """Return a socket that listens on a numeric address.

    Error messages show `listen`, the address as it is written in the configuration. Raises Failure with code 73 if the
    address is in use, and with code 78 if the address does not exist on this machine.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.ExitStack() as unless_bound:
        try:
            listening = unless_bound.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((address, int(port)))
            listening.listen(BACKLOG)
        except (OSError, ValueError, OverflowError) as error:
            raise _cannot_listen(listen, error) from None
        unless_bound.pop_all()
    return listening


def _cannot_listen(listen: str, error: Exception) -> Failure:
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EADDRINUSE):
        return Failure(
            ExitCode.TAKEN,
            f"http.listen = {listen!r}: {error.strerror}: stop what listens there, choose another port, "
            'or turn it off with ""',
        )
    reason = (error.strerror if isinstance(error, OSError) else "") or error
    advice = 'name an address of this machine, as in "127.0.0.1:9477"'
    return Failure(ExitCode.CONFIG, f"http.listen = {listen!r} cannot be listened at: {reason}: {advice}")
