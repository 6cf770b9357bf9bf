"""A small server is slow, busy, broken or no server of Phalanx."""

import json
import socketserver
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, List, Tuple
from unittest import mock

from support import closes

import phalanx
from phalanx import Cluster
from phalanx._transport import RETRY_AFTER_MAX_S, Transport, backoff

Answer = Tuple[int, Dict[str, str], bytes]
OK: Answer = (200, {}, b'{"nodes": []}')


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def any(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), self.client_address))
        status, headers, body = self.server.answers.pop(0)
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = any

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.seen = list(answers), []  # type: ignore[var-annotated]
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


def problem(status: int, **headers: str) -> Answer:
    document = {"status": status, "code": "x", "detail": "what happened", "hint": "what to do"}
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(document).encode()


class PlayedCase(unittest.TestCase):
    def play(self, *answers: Answer, **options: Any) -> Transport:
        self.server = Server(*answers)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        transport = Transport(self.server.url, "token", **options)
        self.waits: List[float] = []
        transport._sleep = self.waits.append
        self.addCleanup(transport.close)
        return transport


class Requests(PlayedCase):
    def test_reads_are_retried(self) -> None:
        gone: Answer = (0, {}, b"")
        transport = self.play(problem(503), gone, problem(429), OK)
        self.assertEqual(transport.call("GET", "/v1/nodes"), {"nodes": []})
        self.assertEqual(len(self.waits), 3)

    def test_retries_end(self) -> None:
        transport = self.play(*[problem(503)] * 9, retries=2)
        with self.assertRaises(phalanx.Unavailable) as caught:
            transport.call("GET", "/v1/nodes")
        self.assertEqual(str(caught.exception), "what happened\nhint: what to do")
        self.assertEqual(len(self.server.seen), 3)

    def test_retry_after_is_honoured(self) -> None:
        transport = self.play(problem(429, retry_after="7"), OK)
        transport.call("GET", "/v1/nodes")
        self.assertGreaterEqual(self.waits[0], 7)
        self.assertEqual(backoff(1, 10_000), RETRY_AFTER_MAX_S)
        self.assertLessEqual(backoff(50, None), 5.0)

    def test_changes_are_sent_once(self) -> None:
        transport = self.play(problem(503), OK)
        with self.assertRaises(phalanx.Unavailable):
            transport.call("DELETE", "/v1/jobs/1")
        with self.assertRaises(phalanx.TooManyRequests) as caught:
            self.server.answers.insert(0, problem(429, retry_after="1"))
            transport.call("POST", "/v1/jobs", body={})
        self.assertEqual(caught.exception.retry_after, 1.0)
        self.assertEqual(len(self.server.seen), 2)

    def test_a_submission_is_retried_with_its_key(self) -> None:
        view = {"id": 7, "state": "pending"}
        answers = [(0, {}, b""), (201, {}, b'{"job": 7}'), (200, {}, json.dumps(view).encode())]
        cluster = Cluster(self.play(*answers))
        self.assertEqual(cluster.submit("true").id, 7)
        keys = [headers["idempotency-key"] for method, _, headers, _ in self.server.seen if method == "POST"]
        self.assertEqual(len(keys), 2)
        self.assertEqual(keys[0], keys[1])

    def test_wait_outlives_a_scheduler_that_is_away(self) -> None:
        def view(state: str) -> Answer:
            return 200, {}, json.dumps({"id": 7, "name": "x", "state": state, "detail": ""}).encode()

        away = problem(503)
        cluster = Cluster(self.play(view("running"), away, away, view("running"), away, view("succeeded"), retries=0))
        self.assertTrue(cluster.job(7).wait(60).succeeded)
        self.server.answers += [view("running"), away]
        with mock.patch("phalanx._patience.OUTAGE_MAX_S", 0.0), self.assertRaises(phalanx.Unavailable):
            cluster.job(7).wait(60)

    def test_connections_are_reused(self) -> None:
        transport = self.play(OK, problem(404), OK, (200, {"connection": "close"}, b"{}"), OK)
        transport.call("GET", "/a")
        with self.assertRaises(phalanx.NotFound):
            transport.call("GET", "/b")
        for path in "cde":
            transport.call("GET", f"/{path}")
        ports = [address[1] for _, _, _, address in self.server.seen]
        self.assertEqual(len(set(ports[:4])), 1, ports)
        self.assertNotEqual(ports[4], ports[3])

    def test_what_no_server_of_phalanx_answers(self) -> None:
        html = b"<html>Not here</html>"
        transport = self.play(
            (200, {}, html), (404, {}, html), (302, {"location": "http://elsewhere/"}, b""), retries=0
        )
        with self.assertRaisesRegex(phalanx.PhalanxError, "no JSON"):
            transport.call("GET", "/v1/nodes")
        with self.assertRaisesRegex(phalanx.NotFound, "HTTP status 404"):
            transport.call("GET", "/v1/nodes")
        with self.assertRaisesRegex(phalanx.PhalanxError, "HTTP status 302"):
            transport.call("GET", "/v1/nodes")

    def test_kinds_of_errors(self) -> None:
        kinds = {
            400: phalanx.BadRequest, 401: phalanx.Unauthorized, 403: phalanx.Forbidden, 404: phalanx.NotFound,
            413: phalanx.BadRequest, 422: phalanx.Rejected, 500: phalanx.PhalanxError, 503: phalanx.Unavailable,
        }  # fmt: skip
        for status, kind in kinds.items():
            with self.subTest(status):
                transport = self.play(problem(status), retries=0)
                with self.assertRaises(phalanx.PhalanxError) as caught:
                    transport.call("GET", "/v1/nodes")
                self.assertIs(type(caught.exception), kind)

    def test_a_server_that_says_nothing(self) -> None:
        with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as silent:
            transport = Transport(f"http://127.0.0.1:{silent.server_address[1]}", None, timeout=0.05, retries=0)
            with self.assertRaisesRegex(phalanx.Unavailable, "no answer within 0.05 s"):
                transport.call("GET", "/v1/nodes")

    def test_values_that_json_cannot_hold(self) -> None:
        transport = self.play()
        with self.assertRaisesRegex(TypeError, "JSON"):
            transport.call("POST", "/v1/jobs", body={"x": float("nan")})


class Streams(PlayedCase):
    def stream(self, text: str) -> phalanx.LogStream:
        body = text.encode()
        transport = self.play((200, {"content-length": "", "connection": "close"}, body), retries=0)
        return phalanx.LogStream(transport.stream("GET", "/v1/jobs/1/logs"))

    def test_events_of_all_shapes(self) -> None:
        line = '{"rank": 2, "attempt": 1, "line": "x"}'
        split = line.replace(", ", ",\ndata: ")
        text = f": hello\n\nevent: log\r\ndata: {line}\r\n\r\nevent:log\ndata: {split}\n\n"
        text += "event: new\ndata: {}\n\nevent: end\ndata: {}\n\n"
        with closes(self.stream(text)) as stream:
            self.assertEqual([entry.rank for entry in stream], [2, 2])

    def test_an_end_without_the_event_is_an_error(self) -> None:
        with closes(self.stream('event: log\ndata: {"rank": 0, "attempt": 1, "line": "x"}\n\nevent: lo')) as stream:
            next(stream)
            with self.assertRaisesRegex(phalanx.Unavailable, "broke off"):
                next(stream)

    def test_a_problem_in_the_stream(self) -> None:
        document = json.dumps({"status": 403, "detail": "not yours", "code": "forbidden"})
        with closes(self.stream(f"event: problem\ndata: {document}\n\n")) as stream:
            with self.assertRaisesRegex(phalanx.Forbidden, "not yours"):
                next(stream)

    def test_data_that_is_no_json(self) -> None:
        with closes(self.stream("event: log\ndata: {\n\n")) as stream:
            with self.assertRaisesRegex(phalanx.PhalanxError, "no JSON"):
                next(stream)


if __name__ == "__main__":
    unittest.main()
