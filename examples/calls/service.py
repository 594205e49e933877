"""A service at http://127.0.0.1:8093 that takes a second for each response."""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class SlowHandler(BaseHTTPRequestHandler):
    """A handler that responds to each GET after one second."""

    def do_GET(self) -> None:
        time.sleep(1)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())


class SlowService(ThreadingHTTPServer):
    """A server that accepts more than a hundred connections at once."""

    request_queue_size = 256


if __name__ == "__main__":
    SlowService(("127.0.0.1", 8093), SlowHandler).serve_forever()
