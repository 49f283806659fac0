"""A real S3 server: moto's, in a process of its own, over the network. `python moto_server.py` prints its port and serves.

Two things are added that S3 has and moto hasn't: conditional puts are decided one at a time, and an upload that was torn on its
way is no object.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

_deciding = Lock()


class KeepAlive(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True


def whole_and_in_turn(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        if len(body) < length:
            raise ConnectionAbortedError("the upload was torn")
        environ["wsgi.input"] = io.BytesIO(body)
        if environ["REQUEST_METHOD"] == "GET":
            return app(environ, start_response)
        with _deciding:
            return app(environ, start_response)

    return call


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = whole_and_in_turn(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=KeepAlive)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
