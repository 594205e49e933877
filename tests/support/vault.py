"""Passwords that expire and change: a server with one user, and a provider of the user's password."""

import json
import time
from pathlib import Path

import redis

from support.servers import Server

USER = "shop"


class Vault:
    """A server whose user has one password at a time, and a provider of this password. `lifetime` is in seconds, or
    None if the password does not expire.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin = redis.Redis.from_url(server.url)
        self.lifetime: float | None = None
        self.asked = 0
        self.given = self.password = ""
        self.change("quince-1")

    def change(self, password: str, *, known: bool = True) -> None:
        """Give the user a new password, and close the user's connections. If `known` is set, the provider returns the
        new password from then on.
        """
        self.password = password
        self.given = password if known else self.given
        self._do("ACL", "SETUSER", USER, "on", "resetpass", f">{password}", "~*", "&*", "+@all")
        self._do("CLIENT", "KILL", "USER", USER)

    def add(self, password: str) -> None:
        """Give the user another password, beside the one that it has."""
        self._do("ACL", "SETUSER", USER, f">{password}")

    def connections(self) -> set[str]:
        """Return the ids of the user's connections."""
        return {each["id"] for each in self.admin.client_list() if each["user"] == USER}

    def names(self) -> set[str]:
        """Return the client names of the user's connections, except for connections that a fleet opens only for a short
        time.
        """
        names = {each["name"] for each in self.admin.client_list() if each["user"] == USER}
        return {name for name in names if name.startswith(("rota:worker", "rota:poller", "rota:master", "rota:orders"))}

    def _do(self, *command: str) -> None:
        self.admin.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py does not type it

    def get_credentials(self) -> tuple[object, ...]:
        """Return the credentials, as a provider object of redis-py does."""
        return self.login()

    def login(self) -> tuple[object, ...]:
        """Return the user, the password and its expiry. This is the provider function of the fleet."""
        self.asked += 1
        return USER, self.given, None if self.lifetime is None else time.time() + self.lifetime

    # The provider for a fleet reads the credentials from a file, so that its next call returns new credentials.

    def serve_in(self, folder: Path) -> None:
        """Write the module `auth`, which contains the provider `login`, into the folder. Publish the password for the
        provider.
        """
        (folder / "auth.py").write_text(_MODULE)
        self._folder = folder
        self.publish()

    def publish(self, failure: str = "") -> None:
        """Make the provider return the current password from now on, or, if `failure` is given, raise an error with
        that text."""
        said = {"user": USER, "password": self.given, "lifetime": self.lifetime, "failure": failure}
        written = self._folder / "vault.new"
        written.write_text(json.dumps(said))
        written.replace(self._folder / "vault.json")

    def logins_in_folder(self) -> int:
        """Return how often the fleet in the folder has called the provider."""
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
