"""Where a request comes from when proxies stand before the server. Only proxies that are named are believed."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import ASGIApp, Receive, Scope, Send

_MOST_HOPS = 20

Network = IPv4Network | IPv6Network


class TrustedProxies:
    """Takes address and scheme of a request from `X-Forwarded-For` and `X-Forwarded-Proto` of trusted proxies.

    Each proxy appends the address that it was asked from, so the list is read from its end, as far as each entry was
    written by a trusted proxy. What stands before the first other address may have been made up by the client.
    """

    def __init__(self, app: ASGIApp, networks: Sequence[str]) -> None:
        self._app = app
        self._networks = tuple(ip_network(network, strict=False) for network in networks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._networks and scope.get("client"):
            peer = _address(scope["client"][0])
            if peer is not None and self._trusts(peer):
                scope = {**scope, "client": (str(self._client(scope, peer)), 0), "scheme": _scheme(scope)}
        await self._app(scope, receive, send)

    def _client(self, scope: Scope, peer: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
        hops = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").split(b",")
        found = peer
        for hop in reversed(hops[-_MOST_HOPS:]):
            before = _address(hop.decode("latin-1"))
            if before is None:
                break
            found = before
            if not self._trusts(found):
                break
        return found

    def _trusts(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._networks)


def _scheme(scope: Scope) -> str:
    """The scheme as the nearest proxy tells it."""
    told = [value for name, value in scope["headers"] if name == b"x-forwarded-proto"]
    last = told[-1].split(b",")[-1].strip().decode("latin-1").lower() if told else ""
    return last if last in ("http", "https") else str(scope["scheme"])


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address with or without a port; None for anything else."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
