"""The password, the signing key and the certificates of a fleet are replaced under load. No task is lost or refused."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from rota_supervisor.acl_roles import AclRole
from support.acl_users import execute, rules_for
from support.certificates import Certificate, certificate
from support.fleets import RunningFleet
from support.server_fixtures import Producer, wait_until_all_ran
from support.servers import Server, free_port, server_binaries
from support.waiting import until

MORE_TASKS: Final = 100  # accepted between two steps
LEASE: Final = {"seconds": 20.0}


class Rotation:
    """A TLS server that requires client certificates, a fleet under load that uses this server, and the files with the
    fleet's secrets.
    """

    def __init__(self, server: Server, tls_port: int, folder: Path, namespace: str, shown: Certificate) -> None:
        self.admin = redis.Redis.from_url(server.url)
        self.folder = folder
        self._address = f"127.0.0.1:{tls_port}/0"
        self._user = f"user-{namespace}"
        self.trust(shown)
        rules = " ".join(rules_for(AclRole.FLEET)).split()
        execute(self.admin, "ACL", "SETUSER", self._user, "on", ">first-password", *rules)
        self.write_password("first-password")
        tls: dict[str, Any] = {"redis_tls_ca": "ca.pem", "redis_tls_cert": "client.pem", "redis_tls_key": "client.key"}
        self.fleet = RunningFleet(
            f"rediss://{self._address}", namespace, folder, redis_url="", lease=LEASE, workers=3, **tls
        )
        del self.fleet.settings["redis_url"]
        self.files = {key: str(folder / name) for key, name in tls.items()}
        self.keys = {"old": f"file:{folder / 'old'}", "new": f"file:{folder / 'new'}"}
        for name in self.keys:
            (folder / name).write_text(f"the {name} key, of which a real one would be random")
        self.fleet.edit(redis_url_file="url", signing=self.signing("old", accepts=["old"]))

    def signing(self, name: str, accepts: list[str]) -> dict[str, Any]:
        """Return the value of the setting `signing` for a fleet that signs with the key `name` and accepts signatures
        with the keys `accepts`.
        """
        return {"keys": {each: self.keys[each] for each in accepts}, "sign_with": name, "required": True}

    def write_password(self, password: str) -> None:
        (self.folder / "url").write_text(f"rediss://{self._user}:{password}@{self._address}")

    def trust(self, *shown: Certificate) -> None:
        """Make the fleet and the producers accept exactly these server certificates."""
        (self.folder / "ca.new").write_text("".join(each.cert.read_text() for each in shown))
        (self.folder / "ca.new").replace(self.folder / "ca.pem")

    def show(self, own: Certificate) -> None:
        """Make the fleet and the producers use this client certificate."""
        shutil.copy(own.key, self.folder / "client.key")
        shutil.copy(own.cert, self.folder / "client.pem")

    def reload(self, **settings: Any) -> None:
        self.fleet.edit(**settings)
        done = self.fleet.rota("reload")
        assert done.returncode == 0, done.stderr

    def set_user(self, *rules: str) -> None:
        execute(self.admin, "ACL", "SETUSER", self._user, *rules)

    def cut_connections(self) -> None:
        """Close all connections of the fleet and the producers, so that they make new ones."""
        execute(self.admin, "CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes")
        until(self.fleet.is_whole, "a fleet that is connected again", 60)

    def producer(self, key: str) -> Producer:
        """Return a producer that signs with a key."""
        url = f"rediss://{self._address}"
        options: dict[str, Any] = {**self.files, "signing_keys": self.keys, "sign_with": key}
        return Producer(url, self.fleet.namespace, patience_seconds=60, **options)


class Certificates:
    """The certificates of the test: two for the server and two for its clients. In both pairs, the second certificate
    replaces the first during the test.
    """

    def __init__(self, folder: Path) -> None:
        self.server = [certificate(folder, f"server-{number}") for number in (1, 2)]
        self.client = [certificate(folder, f"client-{number}") for number in (1, 2)]
        self.of_clients = folder / "clients.pem"
        self.of_clients.write_text("".join(each.cert.read_text() for each in self.client))


@pytest.fixture
def rotation(
    namespace: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Rotation, Certificates]]:
    binary = server_binaries().get("redis")
    if binary is None or shutil.which("openssl") is None:
        pytest.skip("TLS needs a redis-server and openssl on the PATH")
    certificates = Certificates(tmp_path_factory.mktemp("tls"))
    shown, port = certificates.server[0], free_port()
    files = {"tls_cert_file": str(shown.cert), "tls_key_file": str(shown.key)}
    files["tls_ca_cert_file"] = str(certificates.of_clients)
    server = Server(binary, tmp_path_factory.mktemp("server"), tls_port=str(port), tls_auth_clients="yes", **files)
    with ExitStack() as closing:
        closing.callback(server.start().stop)
        made = Rotation(server, port, tmp_path, namespace, shown)
        made.show(certificates.client[0])
        closing.callback(made.admin.close)
        closing.callback(made.fleet.close)
        made.fleet.start()
        yield made, certificates


def test_password_signing_key_and_certificates_are_replaced_under_load(
    rotation: tuple[Rotation, Certificates],
) -> None:
    made, certificates = rotation
    fleet, master = made.fleet, made.fleet.pid
    with made.producer("old") as old:
        old.wait_for(MORE_TASKS)
        made.set_user(">second-password")
        made.write_password("second-password")
        made.reload()
        until(lambda: fleet.log("login.renewed"), "the new password is in use")
        made.set_user("<first-password")
        made.cut_connections()
        old.wait_for(MORE_TASKS)

        made.trust(*certificates.server)
        second = certificates.server[1]
        execute(made.admin, "CONFIG", "SET", "tls-cert-file", str(second.cert), "tls-key-file", str(second.key))
        made.show(certificates.client[1])
        made.cut_connections()
        made.trust(second)
        made.cut_connections()
        old.wait_for(MORE_TASKS)

        made.reload(signing=made.signing("old", accepts=["old", "new"]))
        until(lambda: fleet.is_whole() and not fleet.status()["loading"], "workers that know both keys", 60)
        made.reload(signing=made.signing("new", accepts=["old", "new"]))
        with made.producer("new") as new:
            new.wait_for(MORE_TASKS)
    with made.producer("new") as last:
        wait_until_all_ran(fleet, old)
        made.reload(signing=made.signing("new", accepts=["new"]))
        last.wait_for(MORE_TASKS)
    for producer in (new, last):
        wait_until_all_ran(fleet, producer)
        assert not producer.doubtful
    assert not old.doubtful
    assert fleet.log("task.dead") == []
    assert fleet.pid == master
    assert fleet.books_balance()
