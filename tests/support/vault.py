"""Passwords that expire and change: a server with one user, and what gives out the password."""

import json
import time
from pathlib import Path

import redis

from support.servers import Server

USER = "shop"


class Vault:
    """A server whose user has one password at a time, and what gives it out. `lifetime`: seconds, None for no end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin = redis.Redis.from_url(server.url)
        self.lifetime: float | None = None
        self.asked = 0
        self.given = self.password = ""
        self.change("quince-1")

    def change(self, password: str, *, known: bool = True) -> None:
        """Give the user another password, and end its connections. `known`: it is what is given out from now on."""
        self.password = password
        self.given = password if known else self.given
        self._do("ACL", "SETUSER", USER, "on", "resetpass", f">{password}", "~*", "&*", "+@all")
        self._do("CLIENT", "KILL", "USER", USER)

    def connections(self) -> set[str]:
        """The numbers of the user's connections."""
        return {each["id"] for each in self.admin.client_list() if each["user"] == USER}

    def names(self) -> set[str]:
        """The names of the connections that a fleet always has."""
        names = {each["name"] for each in self.admin.client_list() if each["user"] == USER}
        return {name for name in names if name.startswith(("rota:worker", "rota:poller", "rota:master", "rota:orders"))}

    def _do(self, *command: str) -> None:
        self.admin.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py does not type it

    def get_credentials(self) -> tuple[object, ...]:
        """As a provider of redis-py."""
        return self.login()

    def login(self) -> tuple[object, ...]:
        """As a function."""
        self.asked += 1
        return USER, self.given, None if self.lifetime is None else time.time() + self.lifetime

    # For a fleet: a module that reads what is to be given out from a file, so that it changes for whoever asks next

    def serve_in(self, folder: Path) -> None:
        """Write the module `auth` with the provider `login`, and give out the password there."""
        (folder / "auth.py").write_text(_MODULE)
        self._folder = folder
        self.publish()

    def publish(self, failure: str = "") -> None:
        """Have the provider give out the password from now on, or raise."""
        said = {"user": USER, "password": self.given, "lifetime": self.lifetime, "failure": failure}
        written = self._folder / "vault.new"
        written.write_text(json.dumps(said))
        written.replace(self._folder / "vault.json")

    def asked_in(self) -> int:
        """How often the provider was called there."""
        asked = self._folder / "asked"
        return asked.stat().st_size if asked.exists() else 0


_MODULE = """
import json
import time
from pathlib import Path

HERE = Path(__file__).parent


def login():
    with (HERE / "asked").open("a") as asked:
        asked.write("x")
    said = json.loads((HERE / "vault.json").read_text())
    if said["failure"]:
        raise ConnectionError(said["failure"])
    return said["user"], said["password"], said["lifetime"] and time.time() + said["lifetime"]


other = login


def broken():
    return "the password"


def hanging():
    time.sleep(600)
"""
