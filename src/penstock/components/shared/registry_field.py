"""Where schemas are looked up, as it stands in a pipeline file."""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.spec.fields import Config, Holds, field
from penstock.spec.units import Duration


class Registry(Config):
    """A registry of schemas, and who asks it."""

    url: str = field(holds=Holds.ADDRESS, doc="Its address, such as `https://registry.example.org:8081`.", min_length=1)
    user: str | None = field(None, holds=Holds.LOGIN, doc="Name, or key of an API, as a secret reference.", secret=True)
    password: str | None = field(None, holds=Holds.LOGIN, doc="Its password, as a secret reference.", secret=True)
    timeout: Duration = field(
        Duration(30_000), doc="For how long a batch tries to get a schema before it fails and comes again."
    )

    def mistake(self) -> str | None:
        """What is wrong with it."""
        try:
            parts = urlsplit(self.url)
            parts.port  # noqa: B018 - raises if it is no number
        except ValueError:
            return "url cannot be read as an address"
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return "url must be http:// or https:// with a host"
        if parts.username or parts.password:
            return "url must not hold a name or password: write `user` and `password`"
        if parts.query or parts.fragment:
            return "url must end after the path"
        if (self.user is None) != (self.password is None):
            return "user goes with password"
        return None
