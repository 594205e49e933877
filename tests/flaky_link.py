"""A TCP proxy that loses replies on command: the request arrives, the answer does not."""

import contextlib
import select
import socket
import threading
from typing import Self

WAIT_SECONDS = 0.1


class FlakyLink:
    """Forwards connections to a server; `lose` and `mute` say what happens to the next answers of scripts.

    `requests` counts script calls that reached the server.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._to_lose = 0
        self._to_mute = 0
        self._last_words = False
        self.requests = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def lose(self, answers: int, *, and_close: bool = False) -> None:
        """Cut the connection in place of each of the next answers; then, if asked, refuse new connections."""
        self._to_lose = answers
        self._last_words = and_close

    def mute(self, answers: int) -> None:
        """Swallow the next answers and keep the connections open."""
        self._to_mute = answers

    def close_listener(self) -> None:
        """Refuse new connections."""
        # A listener another thread accepts from stays open until it is shut down.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.close_listener()
        for thread in self._threads:
            thread.join()

    def _start(self, target: "object", *args: socket.socket) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._forward, client)

    def _forward(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server_port)) as server:
            while not self._stop.is_set():
                readable, _, _ = select.select([client, server], [], [], WAIT_SECONDS)
                for source in readable:
                    data = source.recv(1 << 20)
                    if not data or not self._pass(data, client, server, from_client=source is client):
                        return

    def _pass(self, data: bytes, client: socket.socket, server: socket.socket, *, from_client: bool) -> bool:
        if from_client:
            self.requests += data.count(b"EVAL")
            server.sendall(data)
            return True
        if self._to_lose and self.requests:
            self._to_lose -= 1
            if not self._to_lose and self._last_words:
                self.close_listener()
            return False
        if self._to_mute and self.requests:
            self._to_mute -= 1
            return True
        client.sendall(data)
        return True
