"""Login by OpenID Connect: authorization code with PKCE, and an id token that is checked with fixed algorithms."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import ipaddress
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from penstock.control.auth.roles import Access, Grant, Role, highest_of
from penstock.control.config import OidcSettings
from penstock.errors import PenstockError
from penstock.spec.secrets import resolve

ALGORITHMS = ("RS256", "ES256", "EdDSA")
_DISCOVERY_LASTS = dt.timedelta(hours=1)
_KEYS_LAST = dt.timedelta(minutes=1)
"""Keys are not asked for again within this time, whatever tokens come."""
_LOGIN_LASTS = dt.timedelta(minutes=10)
_MOST_USED = 10_000
_FAILURE_LASTS = 2.0
"""Seconds in which an issuer that did not answer is not asked again, however many begin to log in."""
_LEEWAY = 30
_TIMEOUT = 10.0
_LARGEST_ANSWER = 1_000_000


@dataclass(frozen=True)
class Identity:
    """Who logged in, the groups of theirs that open something, and what these open."""

    who: str
    groups: tuple[str, ...]
    accesses: tuple[Access, ...]

    @property
    def role(self) -> Role:
        """The highest of their roles."""
        return Grant.of(self.who, self.accesses).highest


@dataclass(frozen=True)
class _Issuer:
    authorization: str
    token: str
    keys: str
    at: dt.datetime


class Oidc:
    """One issuer. A login that was begun is known by its state alone, which the server signs: it takes no memory, and
    a restart does not end it. Nonce and verifier are derived from the state and the server's key."""

    def __init__(
        self,
        settings: OidcSettings,
        now: Callable[[], dt.datetime],
        client: httpx.Client | None = None,
        *,
        key: bytes | None = None,
        accesses: Callable[[Sequence[str]], Sequence[Access]] | None = None,
    ) -> None:
        self._settings = settings
        self._accesses = accesses or (lambda groups: highest_of(settings.roles, groups))
        """What groups open."""
        self._now = now
        self._client = client or httpx.Client(timeout=_TIMEOUT, follow_redirects=False)
        self._key = key or secrets.token_bytes(32)
        self._used: OrderedDict[str, None] = OrderedDict()
        """States that came back, the latest of them. The issuer takes each code once, too."""
        self._lock = Lock()
        self._issuer: _Issuer | None = None
        self._keys: tuple[KeySet, dt.datetime] | None = None
        self._failed: tuple[PenstockError, float] | None = None

    def begin(self, redirect: str) -> tuple[str, str]:
        """Where the browser is sent to log in, and the state that it must come back with."""
        address = self._discovered().authorization
        unsigned = f"{secrets.token_urlsafe(32)}.{int(self._now().timestamp())}"
        state = f"{unsigned}.{self._derived('state', unsigned)}"
        challenge = _text(hashlib.sha256(self._derived("verifier", state).encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect,
            "scope": " ".join(dict.fromkeys(("openid", *self._settings.scopes))),
            "state": state,
            "nonce": self._derived("nonce", state),
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", state

    def has_begun(self, state: str) -> bool:
        """Whether this server has begun that login, not long ago."""
        unsigned, _, signature = state.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._derived("state", unsigned).encode()):
            return False
        age = self._now() - dt.datetime.fromtimestamp(int(unsigned.rpartition(".")[2]), dt.UTC)
        return abs(age) < _LOGIN_LASTS

    def finish(self, state: str, code: str) -> Identity:
        """Who came back; raises UNAUTHENTICATED, or FORBIDDEN for someone without a role. A state counts once."""
        if not self.has_begun(state) or not self._use(state):
            raise _failed("this login was not begun here, or it took too long")
        answer = self._exchanged(code, self._derived("verifier", state))
        return self.identity(str(answer.get("id_token", "")), self._derived("nonce", state))

    def _use(self, state: str) -> bool:
        with self._lock:
            if state in self._used:
                return False
            self._used[state] = None
            if len(self._used) > _MOST_USED:
                self._used.popitem(last=False)
            return True

    def _derived(self, purpose: str, text: str) -> str:
        return _text(hmac.digest(self._key, f"{purpose}:{text}".encode(), "sha256"))

    def identity(self, token: str, nonce: str) -> Identity:
        """Who an id token speaks of, once everything about it has been checked."""
        claims = self._claims(token)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _failed("its answer belongs to another login")
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if len(audience) > 1 and claims.get("azp") != self._settings.client_id:
            raise _failed("its answer is meant for someone else")
        who = str(claims.get(self._settings.name_claim) or claims["sub"])
        return self._identity(claims, who)

    def _claims(self, token: str) -> dict[str, Any]:
        for fresh in (False, True):
            try:
                found = jwt.decode(token, self._key_set(fresh=fresh), algorithms=list(ALGORITHMS))
                break
            except (JoseError, ValueError) as error:
                # The issuer may have changed its keys since they were asked for.
                if fresh:
                    raise _failed(f"its signature does not hold ({type(error).__name__})") from None
        rules = jwt.JWTClaimsRegistry(
            now=int(self._now().timestamp()),
            leeway=_LEEWAY,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "value": self._settings.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )
        try:
            rules.validate(found.claims)
        except JoseError as error:
            raise _failed(f"its answer does not hold ({type(error).__name__})") from None
        return dict(found.claims)

    def _identity(self, claims: Mapping[str, Any], who: str) -> Identity:
        value = claims.get(self._settings.role_claim)
        names = dict.fromkeys(str(name) for name in (value if isinstance(value, list) else [value]))
        groups = tuple(name for name in names if self._accesses((name,)))
        if not groups:
            reason = f"'{who}' has none of the groups that open this server"
            claim = self._settings.role_claim
            advice = f"An operator maps values of the claim `{claim}` under `oidc.roles` or `projects.NAME.groups`."
            raise PenstockError.of("FORBIDDEN", reason=reason, advice=advice)
        return Identity(who, groups, tuple(self._accesses(groups)))

    # --- the issuer ------------------------------------------------------------------------------------

    def _exchanged(self, code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._settings.redirect,
            "client_id": self._settings.client_id,
            "code_verifier": verifier,
        }
        if self._settings.client_secret is not None:
            form["client_secret"] = resolve(self._settings.client_secret)
        return self._asked("POST", self._discovered().token, data=form)

    def _discovered(self) -> _Issuer:
        known = self._issuer
        if known is not None and self._now() - known.at < _DISCOVERY_LASTS:
            return known
        if self._failed is not None and time.monotonic() - self._failed[1] < _FAILURE_LASTS:
            raise self._failed[0]
        try:
            found = self._asked("GET", self._settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
        except PenstockError as error:
            self._failed = (error, time.monotonic())
            raise
        if found.get("issuer") != self._settings.issuer:
            raise _failed("the issuer calls itself by another name")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        addresses = [str(found.get(name, "")) for name in names]
        if not all(trusted_address(address) for address in addresses):
            raise _failed("the issuer names an address without https")
        authorization, token, keys = addresses
        self._issuer = _Issuer(authorization, token, keys, self._now())
        return self._issuer

    def _key_set(self, *, fresh: bool) -> KeySet:
        now = self._now()
        if self._keys is not None and (not fresh or now - self._keys[1] < _KEYS_LAST):
            return self._keys[0]
        found = self._asked("GET", self._discovered().keys)
        # Shared secrets among the keys would let anyone who sees them sign.
        keys = [
            key for key in found.get("keys", []) if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP")
        ]
        try:
            self._keys = (KeySet.import_key_set({"keys": keys}), now)
        except (JoseError, ValueError):
            raise _failed("the issuer's keys cannot be read") from None
        return self._keys[0]

    def _asked(self, method: str, address: str, **content: Any) -> dict[str, Any]:
        try:
            answer = self._client.request(method, address, **content)
            if answer.status_code != 200 or len(answer.content) > _LARGEST_ANSWER:
                raise _failed(f"the issuer answers {answer.status_code}")
            found = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _failed(f"the issuer does not answer ({type(error).__name__})") from None
        if not isinstance(found, dict):
            raise _failed("the issuer's answer cannot be read")
        return found


def trusted_address(address: str) -> bool:
    """Whether nobody on the way can change what is said: https, or this machine."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def login_key(folder: Path) -> bytes:
    """The key with which logins are signed, made if there is none; it outlives the server."""
    path = folder / "login.key"
    with suppress(FileExistsError):
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "wb") as file:
            file.write(secrets.token_bytes(32))
    found = path.read_bytes()
    if len(found) != 32:  # Its writing was cut off.
        path.unlink()
        return login_key(folder)
    return found


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _failed(reason: str) -> PenstockError:
    return PenstockError.of("UNAUTHENTICATED", reason=f"the login failed: {reason}")
