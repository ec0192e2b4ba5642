"""Login by OpenID Connect: authorization code with PKCE, and an id token that is checked with fixed algorithms."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from penstock.control.auth.roles import Role
from penstock.control.config import OidcSettings
from penstock.errors import PenstockError
from penstock.spec.secrets import resolve

ALGORITHMS = ("RS256", "ES256", "EdDSA")
_DISCOVERY_LASTS = dt.timedelta(hours=1)
_KEYS_LAST = dt.timedelta(minutes=1)
"""Keys are not asked for again within this time, whatever tokens come."""
_LOGIN_LASTS = dt.timedelta(minutes=10)
_MOST_LOGINS = 10_000
_LEEWAY = 30
_TIMEOUT = 10.0
_LARGEST_ANSWER = 1_000_000


@dataclass(frozen=True)
class Identity:
    """Who logged in, and the role that the issuer's claims give."""

    who: str
    role: Role


@dataclass(frozen=True)
class _Begun:
    nonce: str
    verifier: str
    redirect: str
    at: dt.datetime


@dataclass(frozen=True)
class _Issuer:
    authorization: str
    token: str
    keys: str
    at: dt.datetime


class Oidc:
    """One issuer. Logins that were begun are kept in memory: they end with the server."""

    def __init__(self, settings: OidcSettings, now: Callable[[], dt.datetime], client: httpx.Client | None = None):
        self._settings = settings
        self._now = now
        self._client = client or httpx.Client(timeout=_TIMEOUT, follow_redirects=False)
        self._begun: dict[str, _Begun] = {}
        self._lock = Lock()
        self._issuer: _Issuer | None = None
        self._keys: tuple[KeySet, dt.datetime] | None = None

    def begin(self, redirect: str) -> tuple[str, str]:
        """Where the browser is sent to log in, and the state that it must come back with."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._lock:
            self._forget_old()
            if len(self._begun) >= _MOST_LOGINS:
                raise _failed("too many logins have been begun and not finished")
            self._begun[state] = _Begun(nonce, verifier, redirect, self._now())
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect,
            "scope": " ".join(dict.fromkeys(("openid", *self._settings.scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = self._discovered().authorization
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", state

    def finish(self, state: str, code: str) -> Identity:
        """Who came back; raises UNAUTHENTICATED, or FORBIDDEN for someone without a role. A state counts once."""
        with self._lock:
            self._forget_old()
            begun = self._begun.pop(state, None)
        if begun is None:
            raise _failed("this login was not begun here, or it took too long")
        answer = self._exchanged(code, begun)
        return self.identity(str(answer.get("id_token", "")), begun.nonce)

    def identity(self, token: str, nonce: str) -> Identity:
        """Who an id token speaks of, once everything about it has been checked."""
        claims = self._claims(token)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _failed("its answer belongs to another login")
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if len(audience) > 1 and claims.get("azp") != self._settings.client_id:
            raise _failed("its answer is meant for someone else")
        who = str(claims.get(self._settings.name_claim) or claims["sub"])
        return Identity(who, self._role(claims, who))

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

    def _role(self, claims: Mapping[str, Any], who: str) -> Role:
        value = claims.get(self._settings.role_claim)
        names = value if isinstance(value, list) else [value]
        roles = [self._settings.roles[str(name)] for name in names if str(name) in self._settings.roles]
        if not roles:
            reason = f"'{who}' has none of the groups that open this server"
            advice = f"An operator maps values of the claim `{self._settings.role_claim}` to roles under `oidc.roles`."
            raise PenstockError.of("FORBIDDEN", reason=reason, advice=advice)
        return max(roles, key=list(Role).index)

    # --- the issuer ------------------------------------------------------------------------------------

    def _exchanged(self, code: str, begun: _Begun) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect,
            "client_id": self._settings.client_id,
            "code_verifier": begun.verifier,
        }
        if self._settings.client_secret is not None:
            form["client_secret"] = resolve(self._settings.client_secret)
        return self._asked("POST", self._discovered().token, data=form)

    def _discovered(self) -> _Issuer:
        known = self._issuer
        if known is not None and self._now() - known.at < _DISCOVERY_LASTS:
            return known
        found = self._asked("GET", self._settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
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

    def _forget_old(self) -> None:
        since = self._now() - _LOGIN_LASTS
        self._begun = {state: begun for state, begun in self._begun.items() if begun.at > since}


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


def _failed(reason: str) -> PenstockError:
    return PenstockError.of("UNAUTHENTICATED", reason=f"the login failed: {reason}")
