"""Links that log a browser in once: for the person who has just started a server and sits at its machine."""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from penstock.control.auth.tokens import digest

LASTS_SECONDS = 600
_MOST = 100


@dataclass
class LoginLinks:
    """Codes that stand for a token for ten minutes, and can be used once. They are lost when the server ends."""

    clock: Callable[[], float] = time.monotonic
    _tokens: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)
    """By the hash of a code: the token, and when the code was made."""
    _lock: Lock = field(default_factory=Lock)

    def make(self, token: str) -> str:
        """The path of a link. The code stands behind a `#`, which browsers send to nobody."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[digest(code)] = (token, self.clock())
            while len(self._tokens) > _MOST:
                self._tokens.popitem(last=False)
        return f"/login#code={code}"

    def take(self, code: str) -> str | None:
        """The token of a code, which is used up by that; None if it is unknown, used or too old."""
        with self._lock:
            token, made = self._tokens.pop(digest(code), (None, 0.0))
        return token if token is not None and self.clock() - made < LASTS_SECONDS else None


def is_loopback(address: str) -> bool:
    """Whether a request comes from the machine of the server itself."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
