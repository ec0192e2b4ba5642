"""The address of a database server, read from a URL into fields: only known options pass, and no password is shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit


class BadUrl(ValueError):
    """Why a URL cannot be used, in words that repeat nothing of it but the name of an option."""


@dataclass(frozen=True)
class Server:
    """Where a database is and who asks."""

    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """What may be shown of it."""
        return f"{self.host}:{self.port}/{self.database}"

    def without_password(self, text: str) -> str:
        return text.replace(self.password, "***") if self.password else text


def read_url(url: str, schemes: Collection[str], port: int, options: Collection[str]) -> Server:
    """The server that a URL names; raises BadUrl."""
    try:
        parts = urlsplit(url)
        found_port = parts.port
    except ValueError:
        raise BadUrl("it cannot be read as a URL; in a password, write special characters as %XX") from None
    if parts.scheme not in schemes:
        raise BadUrl(f"it must start with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if not parts.hostname:
        raise BadUrl("it names no host")
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise BadUrl("it must name one database after the host")
    return Server(
        host=parts.hostname,
        port=found_port or port,
        database=database,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        options=_options(parts.query, options),
    )


def _options(query: str, known: Collection[str]) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise BadUrl(f"it sets option '{unknown[0]}', which is not allowed; allowed are {', '.join(sorted(known))}")
    for name in ("connect_timeout",):
        if name in found and not found[name].isdigit():
            raise BadUrl(f"option '{name}' must be a number of seconds")
    return found
