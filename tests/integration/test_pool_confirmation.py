"""A confirmation by replicas (the reply to WAIT) covers only the calls that were sent on the same connection. If this
connection breaks, the pool must not accept a confirmation from another connection. The server is a fake.
"""

import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from rota.client.command_replies import Exchange, NotReplied, Replied
from rota.client.timed_connections import ClientPool
from rota.protocol.store import Store
from rota.server.address import NO_ACCESS
from rota.server.endpoint import UrlEndpoint
from rota.server.session import Confirmation

WAIT = Confirmation("wait", 1, 3.0)
DONE = b":1\r\n"
UNKNOWN = b"-NOSCRIPT No matching script.\r\n"


class _Scripted(socketserver.StreamRequestHandler):
    """A fake server. On each connection, it runs the first two scripts that are called by digest. It replies to the
    third with NOSCRIPT, so the client sends the text of the script. If `ends` is set, the server then closes the
    connection in place of its reply to WAIT.
    """

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _ScriptedServer)
        scripts = 0
        while words := self._command():
            match words[0]:
                case b"EVALSHA":
                    scripts += 1
                    self.wfile.write(DONE if scripts <= 2 else UNKNOWN)
                case b"EVAL":
                    self.wfile.write(DONE)
                case b"WAIT" if scripts == 3 and server.ends:
                    server.ends = False
                    return
                case b"WAIT":
                    self.wfile.write(DONE)
                case _:
                    self.wfile.write(b"+OK\r\n")

    def _command(self) -> list[bytes]:
        count = int(self.rfile.readline()[1:] or 0)
        return [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(count)]


class _ScriptedServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    ends = False  # whether to close the connection once, in place of the first reply to WAIT


@pytest.fixture(name="scripted")
def _scripted() -> Iterator[_ScriptedServer]:
    with _ScriptedServer(("127.0.0.1", 0), _Scripted) as scripted:
        thread = threading.Thread(target=scripted.serve_forever, args=(0.01,))
        thread.start()
        yield scripted
        scripted.shutdown()
        thread.join()


@pytest.mark.parametrize(("ends", "expected"), [(False, Replied), (True, NotReplied)])
def test_a_confirmation_counts_only_for_calls_on_the_same_connection(
    scripted: _ScriptedServer, ends: bool, expected: type
) -> None:
    scripted.ends = ends
    commands = [Store("test").pause(queue) for queue in ("a", "b")]
    pool = ClientPool(UrlEndpoint(f"redis://127.0.0.1:{scripted.server_address[1]}", NO_ACCESS, "{x}:tasks"), 5.0)
    # Without this call, the connection would be new, and on a new connection the pool sends scripts as text.
    pool.exchange(Exchange(commands[:1], None, time.monotonic() + 5))
    answers = pool.exchange(Exchange(commands, WAIT, time.monotonic() + 5))
    pool.close()
    assert [type(answer) for answer in answers] == [expected, expected]
