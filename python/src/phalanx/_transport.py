"""HTTP with the standard library: connections are reused, safe requests retried, everything has a timeout."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import select
import socket
import ssl
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, TypeVar
from urllib.parse import urlencode, urlsplit

from ._errors import PhalanxError, TooManyRequests, Unavailable, from_answer
from ._stream import EventStream

IDLE_CONNECTIONS_MAX = 8
RETRY_AFTER_MAX_S = 30.0
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
ANSWER_BYTES_MAX = 512 << 20
PROBLEM_BYTES_MAX = 1 << 20
READ_BYTES = 128 << 10
# The server sends a comment into an idle stream every 15 seconds.
STREAM_TIMEOUT_S = 60.0
SOCKET_SCHEME = "unix:"
BROKEN = (OSError, http.client.HTTPException)

Json = Any
Answer = TypeVar("Answer")


class Request(NamedTuple):
    """A request, ready to send."""

    method: str
    target: str
    headers: Dict[str, str]
    body: Optional[bytes]
    is_safe: bool
    """A second request does no more than the first."""


class SocketConnection(http.client.HTTPConnection):
    """HTTP over the Unix socket of a daemon, whose kernel says who asks."""

    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no Unix sockets")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """Sends requests to one server. Threads may share it."""

    def __init__(
        self,
        url: str,
        token: Optional[str],
        *,
        timeout: float = 30.0,
        retries: int = 4,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self._socket = url[len(SOCKET_SCHEME) :] if url.startswith(SOCKET_SCHEME) else None
        parts = urlsplit("http://localhost" if self._socket else url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no address of a server, such as http://127.0.0.1:7077 or unix:/run/a.sock")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.retries = retries
        self._parts, self._base, self._tls = parts, parts.path.rstrip("/"), tls
        self._token = token
        self._idle: List[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._sleep: Callable[[float], None] = time.sleep

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, Any]] = None,
        body: Json = None,
    ) -> Json:
        """The document that answers a request."""
        request = self._request(method, path, query, headers, body)
        raw = self._retried(request, lambda: self._send(request))
        try:
            return json.loads(raw)
        except ValueError:
            raise PhalanxError("the answer of the server is no JSON", hint=f"check the address {self.url}") from None

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, Any]] = None,
        body: Json = None,
    ) -> EventStream:
        """The events that answer a request. The caller closes the stream."""
        request = self._request(method, path, query, headers, body)
        return self._retried(request, lambda: self._open(request))

    def close(self) -> None:
        """Closes all idle connections; later requests fail."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _request(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]],
        headers: Optional[Mapping[str, Any]],
        body: Json,
    ) -> Request:
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        target = self._base + path + (f"?{urlencode(given)}" if given else "")
        sent = {name: _text(value) for name, value in (headers or {}).items() if value is not None}
        is_safe = method == "GET" or "idempotency-key" in sent
        sent["accept"] = "application/json, application/problem+json, text/event-stream"
        sent["user-agent"] = "phalanx-client"
        data = None
        if isinstance(body, str):
            data, sent["content-type"] = body.encode("utf-8"), "application/yaml"
        elif body is not None:
            data, sent["content-type"] = _dump(body), "application/json"
        return Request(method, target, sent, data, is_safe)

    def _retried(self, request: Request, send: Callable[[], Answer]) -> Answer:
        """Sends until an answer comes; a request that is not safe is sent once."""
        attempts = (self.retries if request.is_safe else 0) + 1
        failures = 0
        while True:
            try:
                return send()
            except (Unavailable, TooManyRequests) as error:
                failures += 1
                if failures >= attempts or self._is_closed:
                    raise
                self._sleep(backoff(failures, error.retry_after))

    def _send(self, request: Request) -> bytes:
        connection = self._take()
        with self._guarded(connection):
            answer = self._ask(connection, request)
            body = _read(answer, ANSWER_BYTES_MAX)
        self._give_back(connection, answer)
        if len(body) > ANSWER_BYTES_MAX:
            raise PhalanxError(f"the answer has more than {ANSWER_BYTES_MAX} bytes", hint="ask for fewer items")
        return _checked(answer, body)

    def _open(self, request: Request) -> EventStream:
        connection = self._connect()
        body = None
        with self._guarded(connection):
            answer = self._ask(connection, request)
            if answer.status >= 300:
                body = _read(answer, PROBLEM_BYTES_MAX)
            elif connection.sock is not None:
                connection.sock.settimeout(STREAM_TIMEOUT_S)
        if body is not None:
            self._give_back(connection, answer)
            _checked(answer, body)
        return EventStream(connection, answer)

    @contextlib.contextmanager
    def _guarded(self, connection: http.client.HTTPConnection) -> Iterator[None]:
        """Closes a connection whose request did not get its whole answer."""
        try:
            yield
        except BROKEN as error:
            connection.close()
            raise self._unavailable(error) from error
        except BaseException:
            connection.close()
            raise

    def _ask(self, connection: http.client.HTTPConnection, request: Request) -> http.client.HTTPResponse:
        """Sends the request and reads the head of the answer."""
        headers = dict(request.headers)
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        try:
            connection.request(request.method, request.target, body=request.body, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            # The server may have refused a body that it did not read to its end: its answer says why.
            if connection.sock is None or request.body is None:
                raise
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_closed:
            raise PhalanxError("the connection to the cluster is closed", hint="call Cluster.connect() again")
        if self._socket:
            return SocketConnection(self._socket, timeout=self.timeout)
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=self.timeout)

    def _take(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if _is_alive(connection.sock):
                return connection
            connection.close()

    def _give_back(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        is_reusable = answer.isclosed() and not answer.will_close and connection.sock is not None
        with self._lock:
            if is_reusable and not self._is_closed and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _unavailable(self, error: BaseException) -> Unavailable:
        is_slow = isinstance(error, socket.timeout)
        what = f"no answer within {self.timeout:g} s" if is_slow else (str(error) or type(error).__name__)
        hint = "`phalanx up --detach` starts the daemon; check the address"
        return Unavailable(f"{self.url} does not answer: {what}", hint=hint, code="unreachable")


def _read(answer: http.client.HTTPResponse, most: int) -> bytes:
    """The body, up to a byte more than `most`. In pieces: Python 3.9 allocates the size that `read` is given."""
    body = bytearray()
    while len(body) <= most:
        piece = answer.read(min(READ_BYTES, most + 1 - len(body)))
        if not piece:
            break
        body += piece
    return bytes(body)


def _checked(answer: http.client.HTTPResponse, body: bytes) -> bytes:
    """The body of a success; a refusal becomes an exception."""
    if answer.status >= 300:
        named = {name.lower(): value for name, value in answer.getheaders()}
        raise from_answer(answer.status, named, body[:PROBLEM_BYTES_MAX])
    return body


def backoff(failures: int, retry_after: Optional[float]) -> float:
    """Seconds to wait before the next attempt, doubled each time; at least what the server asks for."""
    wait = min(BACKOFF_FIRST_S * 2.0 ** (failures - 1), BACKOFF_MAX_S)
    wait *= random.uniform(0.5, 1.0)
    return max(wait, min(retry_after or 0.0, RETRY_AFTER_MAX_S))


def _is_alive(sock: Optional[socket.socket]) -> bool:
    """Whether an idle connection can be used: unexpected bytes mean that the server closed it."""
    if sock is None or sock.fileno() < 0:
        return False
    if not hasattr(select, "poll"):
        return not select.select([sock], [], [], 0)[0]
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _dump(body: Json) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise TypeError(f"the request cannot be written as JSON: {error}") from None
