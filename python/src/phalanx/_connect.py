"""The address of the cluster, and a token for it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
import subprocess
from typing import Any, Dict, NamedTuple, Optional, Union

from ._errors import PhalanxError, Unavailable

TOKEN_LIFE = "1h"
COMMAND_TIMEOUT_S = 30.0


class Access(NamedTuple):
    """An address, a token, and the name of the token if this process made it."""

    url: str
    token: Optional[str]
    name: Optional[str] = None


def find_access(url: Optional[str], token: Optional[str]) -> Access:
    """Arguments first, then PHALANX_URL and PHALANX_TOKEN, then a token that the command `phalanx` makes."""
    url = url or os.environ.get("PHALANX_URL") or None
    token = token or os.environ.get("PHALANX_TOKEN") or None
    if url and token:
        return Access(url, token)
    if token:
        raise PhalanxError("a token is given, but no address", hint="pass url=, or set PHALANX_URL")
    made = make_token()
    return made._replace(url=url) if url else made


def trust(ca_file: Union[str, "os.PathLike[str]", None]) -> Optional[ssl.SSLContext]:
    """The authorities of a file, else of PHALANX_CA_FILE; None stands for those of the system."""
    file = ca_file or os.environ.get("PHALANX_CA_FILE") or None
    if file is None:
        return None
    try:
        return ssl.create_default_context(cafile=os.fspath(file))
    except (OSError, ssl.SSLError) as error:
        hint = "ca_file is a PEM file (-----BEGIN CERTIFICATE-----)"
        raise PhalanxError(f"the authorities in {os.fspath(file)} cannot be read: {error}", hint=hint) from None


def make_token() -> Access:
    """A token of this user with a short life, from the daemon on this machine."""
    command = os.environ.get("PHALANX_BIN") or shutil.which("phalanx")
    if not command:
        hint = "set PHALANX_URL and PHALANX_TOKEN (`phalanx token create NAME` prints both), or install phalanx"
        raise Unavailable("no address is given, and there is no command `phalanx`", hint=hint)
    name = f"python-{os.getpid()}-{secrets.token_hex(4)}"
    made = _run([command, "token", "create", name, "--for", TOKEN_LIFE, "-o", "json"])
    return Access(str(made["address"]), str(made["text"]), name)


def _run(command: "list[str]") -> Dict[str, Any]:
    try:
        # Only the daemon of this machine makes tokens.
        here = {name: value for name, value in os.environ.items() if name not in ("PHALANX_URL", "PHALANX_TOKEN")}
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_TIMEOUT_S, env=here
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"`{command[0]}` made no token: {error}", hint="set PHALANX_URL and PHALANX_TOKEN") from None
    document = _document(done.stdout)
    if done.returncode != 0 or "text" not in document:
        problem = document.get("error") or _document(done.stderr).get("error") or {}
        detail = problem.get("message") or done.stderr.decode("utf-8", "replace").strip() or "it made no token"
        raise Unavailable(str(detail), hint=str(problem.get("hint") or ""), code=str(problem.get("code") or ""))
    return document


def _document(text: bytes) -> Dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
