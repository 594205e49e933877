"""Server certificates that a client must not accept, and certificates that are replaced while clients are connected."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
import trustme

import rota
from support.servers import Server, free_port, server_binaries
from support.waiting import repeating, until

ADDRESS = "127.0.0.1"


class TlsServer:
    """A server with TLS, whose certificate can be replaced, and the file with the certificate authority that clients
    trust.
    """

    def __init__(self, binary: str, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.ca_file = folder / "ca.pem"
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(self.ca_file))
        self._issued = 0
        files = self._write(self.authority.issue_cert(ADDRESS))
        options = dict(zip(("tls_cert_file", "tls_key_file"), files, strict=True))
        ca = {"tls_ca_cert_file": str(self.ca_file), "tls_auth_clients": "no"}
        self.server = Server(binary, folder, tls_port=str(self._port), **ca, **options).start()
        self.admin = redis.Redis.from_url(self.server.url)

    @property
    def url(self) -> str:
        return f"rediss://{ADDRESS}:{self._port}/0"

    def client(self, namespace: str) -> rota.Client:
        return rota.Client(self.url, namespace, redis_tls_ca=str(self.ca_file))

    def show(self, certificate: trustme.LeafCert) -> None:
        """Use this certificate for new connections, and close the existing connections."""
        cert, key = self._write(certificate)
        self.admin.config_set("tls-cert-file", cert, "tls-key-file", key)
        self.admin.client_kill_filter(_type="normal", skipme=True)

    def _write(self, certificate: trustme.LeafCert) -> tuple[str, str]:
        self._issued += 1
        cert, key = (str(self._folder / f"{self._issued}.{kind}") for kind in ("pem", "key"))
        certificate.cert_chain_pems[0].write_to_path(cert)
        certificate.private_key_pem.write_to_path(key)
        return cert, key


@pytest.fixture(name="tls")
def _tls(tmp_path: Path) -> Iterator[TlsServer]:
    binary = server_binaries().get("redis")
    if binary is None:
        pytest.skip("TLS needs a redis-server on the PATH")
    made = TlsServer(binary, tmp_path)
    yield made
    made.admin.close()
    made.server.stop()


def test_an_expired_certificate_is_refused(tls: TlsServer, namespace: str) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    tls.show(tls.authority.issue_cert(ADDRESS, not_before=yesterday - timedelta(days=1), not_after=yesterday))
    with tls.client(namespace) as client, pytest.raises(rota.Unavailable, match="certificate has expired"):
        client.enqueue("work", queue="q")


def test_a_certificate_for_another_name_is_refused(tls: TlsServer, namespace: str) -> None:
    tls.show(tls.authority.issue_cert("redis.example"))
    with tls.client(namespace) as client, pytest.raises(rota.Unavailable, match="IP address mismatch"):
        client.enqueue("work", queue="q")


def test_a_certificate_of_an_unknown_authority_is_refused(tls: TlsServer, namespace: str) -> None:
    tls.show(trustme.CA().issue_cert(ADDRESS))
    with tls.client(namespace) as client, pytest.raises(rota.Unavailable, match="unable to get local issuer"):
        client.enqueue("work", queue="q")


def test_trust_ends_when_the_authoritys_file_is_removed(tls: TlsServer, namespace: str) -> None:
    with tls.client(namespace) as client:
        client.enqueue("work", queue="q")
        tls.ca_file.unlink()
        tls.admin.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(rota.Unavailable, match=r"ca\.pem: cannot be read: No such file"):
            client.enqueue("work", queue="q")


def test_certificates_and_authority_change_under_load_and_no_call_fails(tls: TlsServer, namespace: str) -> None:
    accepted: list[str] = []
    with tls.client(namespace) as client:

        def enqueue() -> None:
            try:
                accepted.append(client.enqueue("work", queue="q").id)
            except rota.Uncertain as doubt:  # the connection was closed before the reply
                accepted.extend(handle.id for handle in doubt.repeat())

        with repeating(enqueue, 0.002, threads=3):
            for authority in (tls.authority, trustme.CA()):
                before = len(accepted)
                until(lambda: len(accepted) > before + 50, "more enqueues")  # noqa: B023 - called in here
                replace_file(tls.ca_file, tls.ca_file.read_bytes() + authority.cert_pem.bytes())
                tls.show(authority.issue_cert(ADDRESS))
            until(lambda: len(accepted) > before + 100, "enqueues with the last certificate")
        assert len(set(accepted)) == len(accepted) == client.queues()[0].ready


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file as a certificate manager does, so that a reader gets the old or the new content."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)
