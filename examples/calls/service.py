"""A service that takes a second for each answer, at http://127.0.0.1:8093."""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class SlowHandler(BaseHTTPRequestHandler):
    """Answers each GET a second later."""

    def do_GET(self) -> None:
        time.sleep(1)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())


class SlowService(ThreadingHTTPServer):
    """Takes a hundred callers at once."""

    request_queue_size = 256


if __name__ == "__main__":
    SlowService(("127.0.0.1", 8093), SlowHandler).serve_forever()
