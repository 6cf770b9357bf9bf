"""The address of the cluster, a token for it, and the authorities that it is trusted by."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import NamedTuple, Optional, Union

from ._errors import PhalanxError, Unavailable
from ._transport import SOCKET_SCHEME

SOCKET = "phalanx.sock"
SHARED_STATE = Path("/var/lib/phalanx")


class Access(NamedTuple):
    """An address, and a token. The socket of a daemon needs none: the kernel says who asks."""

    url: str
    token: Optional[str]


def find_access(url: Optional[str], token: Optional[str]) -> Access:
    """Arguments first, then PHALANX_URL and PHALANX_TOKEN, then the socket of the daemon on this machine."""
    url = url or os.environ.get("PHALANX_URL") or None
    token = token or os.environ.get("PHALANX_TOKEN") or None
    if url is None and token is not None:
        raise PhalanxError("a token is given, but no address", hint="pass url=, or set PHALANX_URL")
    if url is None:
        return Access(f"{SOCKET_SCHEME}{find_socket()}", None)
    if token is None and not url.startswith(SOCKET_SCHEME):
        hint = "pass token=, or set PHALANX_TOKEN; `phalanx token create NAME` prints one"
        raise PhalanxError("an address is given, but no token", hint=hint)
    return Access(url, token)


def find_socket() -> Path:
    """Where the commands look: PHALANX_STATE, else the daemon of this user, else that of the machine."""
    given = os.environ.get("PHALANX_STATE")
    found = Path(given) / SOCKET if given else own_state() / SOCKET
    shared = SHARED_STATE / SOCKET
    if not given and not found.exists() and shared.exists():
        return shared
    if not found.exists():
        hint = (
            "`phalanx up --detach` starts a daemon; for a cluster elsewhere set PHALANX_URL and PHALANX_TOKEN "
            "(`phalanx token create NAME` prints both)"
        )
        raise Unavailable(f"no daemon answers: there is no {found}", hint=hint, code="unreachable")
    return found


def own_state() -> Path:
    """The state folder of this user's daemon."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return SHARED_STATE
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "phalanx"


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
