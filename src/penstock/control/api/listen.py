"""Where the server listens: on this machine only, unless what is said is encrypted or someone insists."""

from __future__ import annotations

import socket

from penstock.control.auth.oidc import is_loopback
from penstock.errors import PenstockError


def listen(host: str, port: int, *, tls: bool, insecure: bool) -> socket.socket:
    """A socket that listens; raises BIND_REFUSED or PORT_TAKEN. Port 0 takes any that is free."""
    if not (tls or insecure or is_loopback(host)):
        raise PenstockError.of("BIND_REFUSED", host=host)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _taken(host, port, error) from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A client that does not take what was sent to it is gone.
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        raise _taken(host, port, error) from None
    return found


def _taken(host: str, port: int, error: OSError) -> PenstockError:
    return PenstockError.of("PORT_TAKEN", host=host, port=port, reason=error.strerror or str(error))
