"""Which servers a pipeline may reach, however their addresses are written."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_URL_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
NO_ADDRESS = "it cannot be read as an address"
_PORT = re.compile(r"\d{1,5}")
_AUTHORITY = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%\[\]-]*")
FILE_OPTIONS = ("sslrootcert", "ssl_ca")
"""Options of the URL of a database that name a file."""
_METADATA_NAMES = (
    "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
    "metadata.azure.internal", "metadata.tencentyun.com",
)  # fmt: skip
_METADATA_NETWORKS = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::/32", "100.100.100.200/32", "192.0.0.192/32",
        "168.63.129.16/32",
    )
)  # fmt: skip
_TRANSLATED = tuple(ipaddress.ip_network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96"))
"""Addresses of IPv6 whose last four bytes are one of IPv4."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class AddressLimits:
    """Schemes of URLs that may be named, and hosts that may be reached; without `hosts` all but those denied."""

    schemes: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()

    def refusal(self, address: str) -> str | None:
        """Why a URL, or a list of brokers, may not be used; None if it may."""
        text = address.strip()
        scheme = url_scheme(text)
        if scheme is None:
            return self._brokers_refusal(text)
        if scheme not in self.schemes:
            return f"addresses that start with {scheme}: are not allowed"
        if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
            return "it holds characters that no address has"
        try:
            hosts = list(_hosts(urlsplit(text)))
        except ValueError:
            return NO_ADDRESS
        return next((reason for host in hosts if (reason := self.host_refusal(host))), None)

    def _brokers_refusal(self, brokers: str) -> str | None:
        for broker in brokers.split(","):
            host, colon, port = broker.strip().rpartition(":")
            if not colon or not _PORT.fullmatch(port):
                return NO_ADDRESS
            reason = self.host_refusal(host)
            if reason is not None:
                return reason
        return None

    def host_refusal(self, host: str) -> str | None:
        """Why a host may not be reached; only its name is looked at."""
        name = host.strip("[]").rstrip(".").lower()
        if not name:
            return "it names no host"
        if not (_NAME.fullmatch(name) or (":" in name and as_address(name))):
            return "it does not name one host"
        if is_metadata(name) or any(fnmatchcase(name, pattern.lower()) for pattern in self.denied):
            return f"{name} may not be reached by pipelines"
        if self.hosts and not any(fnmatchcase(name, item.lower()) for item in self.hosts):
            return f"{name} is not among the hosts that pipelines may reach"
        return None

    def refusal_of_server(self, host: str) -> str | None:
        """Why a host may not be reached now: what its name stands for at this moment is looked at too."""
        reason = self.host_refusal(host)
        if reason is not None:
            return reason
        name = host.strip("[]")
        try:
            found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
        except (OSError, UnicodeError):
            return None  # It cannot be reached at all, which is noticed later.
        hidden = next((address for address in sorted(found) if is_metadata(address)), None)
        return None if hidden is None else f"{name} stands for {hidden}, which may not be reached by pipelines"


def url_scheme(text: str) -> str | None:
    """The scheme of a URL; None for `host:port`."""
    found = _URL_SCHEME.match(text.strip())
    if found is None or not text.strip()[found.end() :].startswith("/"):
        return None
    return found[1].lower()


def file_options(url: str) -> Iterator[str]:
    """The files that options of the URL of a database name."""
    try:
        query = urlsplit(url.strip()).query
    except ValueError:
        return
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name.lower() in FILE_OPTIONS and value != "system":
            yield value


def plain_password(url: str) -> str | None:
    """The password in a URL."""
    try:
        return urlsplit(url.strip()).password
    except ValueError:
        return None


def servers(address: str) -> list[str]:
    """The hosts in a URL or a list of brokers."""
    try:
        if url_scheme(address) is not None:
            return list(_hosts(urlsplit(address.strip())))
    except ValueError:
        return []
    return [broker.strip().rpartition(":")[0] for broker in address.split(",")]


def _hosts(parts: SplitResult) -> Iterator[str]:
    if not _AUTHORITY.fullmatch(parts.netloc):
        raise ValueError("not an authority")
    # Drivers of databases take a list of hosts, which has no single name.
    for host in parts.netloc.rpartition("@")[2].split(","):
        if host.startswith("["):
            yield host.partition("]")[0] + "]"
        else:
            yield unquote(host.partition(":")[0])


def is_metadata(host: str) -> bool:
    """Whether a host is where a cloud tells a machine its secrets, in any way of writing an address."""
    if host in _METADATA_NAMES:
        return True
    address = as_address(host)
    return address is not None and any(each in network for each in _meanings(address) for network in _METADATA_NETWORKS)


def _meanings(address: Address) -> Iterator[Address]:
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        yield from (each for each in (address.ipv4_mapped, address.sixtofour) if each is not None)
        if address.teredo is not None:
            yield from address.teredo
        if any(address in network for network in _TRANSLATED) or address.packed[:12] == bytes(12):
            yield ipaddress.IPv4Address(address.packed[12:])


def as_address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        # Also what only the C library takes for an address, such as 2852039166 and 0xa9.0xfe.43518.
        return ipaddress.IPv4Address(socket.inet_aton(host)) if host and host[0].isdigit() else None
    except (OSError, UnicodeError):
        return None
