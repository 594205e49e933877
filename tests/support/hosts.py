"""Hosts for tests. A host is a network namespace that a bridge connects to the namespace of this process. A helper
process holds each namespace open, and ends together with this process. The kernel then removes the namespace with its
links, so nothing is left over. The rest of the machine is not affected.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from support.waiting import until

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET: Final = 0x40000000
_ADDRESS: Final = "10.117.0.{}"
SERVER_ADDRESS: Final = _ADDRESS.format(1)  # the address of this process, as the hosts see it
_CONNECT_SECONDS: Final = 0.2
_TRIAL: Final = "ip link add switch type bridge && ip link add port type veth peer name eth0"


def obstacle() -> str:
    """Return the reason why this machine cannot create hosts, or "" if it can."""
    try:
        tried = subprocess.run(["unshare", "--net", "sh", "-c", _TRIAL], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return f"hosts need {error.filename}"
    return f"hosts need root, and a kernel with bridges and veth: {tried.stderr.strip()}" if tried.returncode else ""


class Host:
    """A host with a loopback device and its own address. A command with `prefix` before it runs on this host,
    and reaches this process at `SERVER_ADDRESS`.
    """

    def __init__(self, name: str, number: int) -> None:
        self._port = f"port-{name}"
        self._holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        space = Path(f"/proc/{self._holder.pid}/ns/net")
        self.prefix = ["nsenter", f"--net={space}"]
        ours = Path("/proc/self/ns/net").readlink()
        until(lambda: space.readlink() != ours, "a network namespace")
        _ip(f"link add {self._port} type veth peer name eth0 netns {self._holder.pid}")
        _ip("link set lo up", f"address add {_ADDRESS.format(number)}/24 dev eth0", "link set eth0 up", on=self.prefix)
        _ip(f"link set {self._port} master switch up")

    def unplug(self) -> None:
        """Take the link down, as if its cable were pulled. Packets are lost in both directions without an error."""
        _ip(f"link set {self._port} down")

    def plug(self) -> None:
        """Bring the link up again. It may take a second before the host can reach this process."""
        _ip(f"link set {self._port} up")

    def reaches(self, port: int) -> bool:
        """Whether the host can connect to a port of this process now."""
        program = f"import socket; socket.create_connection(({SERVER_ADDRESS!r}, {port}), {_CONNECT_SECONDS})"
        trial = [*self.prefix, sys.executable, "-I", "-S", "-c", program]
        return subprocess.run(trial, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def close(self) -> None:
        """End the process that holds the namespace. The host still exists until its last process has ended."""
        self._holder.communicate()


def _ip(*commands: str, on: Sequence[str] = ()) -> None:
    """Run `ip` commands in this namespace or on a host."""
    subprocess.run([*on, "ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


@contextmanager
def hosts(names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """Run hosts with these names for a block. This process must have only one thread. It leaves the machine's network
    permanently. Raises OSError if that is not permitted.
    """
    if _LIBC.unshare(_CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, f"no network namespace can be made: {os.strerror(code)}")
    _ip("link set lo up", "link add switch type bridge", f"address add {SERVER_ADDRESS}/24 dev switch")
    _ip("link set switch up")
    with ExitStack() as stack:
        made = {name: Host(name, 2 + number) for number, name in enumerate(names)}
        for host in made.values():
            stack.callback(host.close)
        yield made
