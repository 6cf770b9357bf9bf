"""Server-sent events."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from ._errors import PhalanxError, Unavailable, from_problem

EVENT_BYTES_MAX = 64 << 20


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    data: Any
    id: Optional[int]


class EventStream:
    """Events as they come. Iterating ends when the server ends the stream; `close` may be called by any thread."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self._connection, self._answer = connection, answer
        self._socket = connection.sock
        self._buffer = b""
        self._is_closed = False

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        fields: Dict[str, str] = {}
        data: List[str] = []
        if self._is_closed:
            # Events that came before stay unread.
            raise StopIteration
        while True:
            line = self._line()
            if line is None:
                self._connection.close()
                raise StopIteration
            if line == "":
                if data:
                    return _event(fields, "\n".join(data))
                fields.clear()
                continue
            name, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name == "data":
                data.append(value)
            elif name:
                fields[name] = value

    @property
    def is_closed_here(self) -> bool:
        """Whether `close` was called, rather than the server ending the stream."""
        return self._is_closed

    def close(self) -> None:
        """Ends the stream; a thread that waits for the next event sees its end."""
        self._is_closed = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._connection.close()

    def _line(self) -> Optional[str]:
        while b"\n" not in self._buffer:
            piece = self._read()
            if not piece:
                return None
            self._buffer += piece
            if len(self._buffer) > EVENT_BYTES_MAX:
                self.close()
                raise PhalanxError(f"an event has more than {EVENT_BYTES_MAX} bytes", hint="check the address")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r").decode("utf-8", "replace")

    def _read(self) -> bytes:
        try:
            return b"" if self._is_closed else self._answer.read1(65536)
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            if self._is_closed:
                return b""
            self.close()
            raise broken(str(error) or type(error).__name__) from error

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def broken(why: str) -> Unavailable:
    """A stream ended before the server said that it ends."""
    return Unavailable(f"the stream broke off: {why}", hint="open the stream again", code="broken_stream")


def _event(fields: Dict[str, str], text: str) -> Event:
    try:
        data = json.loads(text)
    except ValueError:
        raise PhalanxError("an event of the stream is no JSON", hint="check the address") from None
    name, number = fields.get("event", "message"), fields.get("id", "")
    if name == "problem":
        raise from_problem(data, int(data.get("status", 500)))
    return Event(name, data, int(number) if number.isdigit() else None)
