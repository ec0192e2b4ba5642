"""Login by OpenID Connect against a real issuer on this machine."""

from __future__ import annotations

import base64
import datetime as dt
import hmac
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from joserfc.jwk import RSAKey
from tests.control.auth.issuer import CLIENT, SECRET, Issuer, running_issuer

from penstock.control.auth.oidc import Oidc, trusted_address
from penstock.control.auth.roles import Role
from penstock.control.config import OidcSettings
from penstock.errors import PenstockError

REDIRECT = "http://127.0.0.1:1/api/v1/login/callback"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


class Clock:
    def __init__(self) -> None:
        self.ahead = dt.timedelta()

    def __call__(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def oidc(issuer: Issuer, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Oidc:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    settings = OidcSettings(
        issuer=issuer.address,
        client_id=CLIENT,
        client_secret="${secret:env/OIDC_SECRET}",
        redirect=REDIRECT,
        roles={"data": Role.AUTHOR, "ops": Role.OPERATOR, "boss": Role.ADMIN},
    )
    return Oidc(settings, clock)


def come_back(address: str) -> dict[str, str]:
    """What a browser brings back from the issuer."""
    return dict(httpx.URL(httpx.get(address).headers["Location"]).params)


def refused(oidc: Oidc, token: str, nonce: str = "n") -> str:
    with pytest.raises(PenstockError) as raised:
        oidc.identity(token, nonce)
    return raised.value.code


def test_a_person_logs_in_with_the_highest_role_of_their_groups(oidc: Oidc, issuer: Issuer) -> None:
    issuer.claims["groups"] = ["data", "ops", "unknown"]
    address, state = oidc.begin(REDIRECT)
    brought = come_back(address)
    assert brought["state"] == state
    assert oidc.finish(state, brought["code"]).role is Role.AUTHOR


def test_a_login_counts_once(oidc: Oidc) -> None:
    address, state = oidc.begin(REDIRECT)
    brought = come_back(address)
    assert oidc.finish(state, brought["code"]).who == "ann@example.org"
    with pytest.raises(PenstockError) as raised:
        oidc.finish(state, brought["code"])
    assert raised.value.code == "UNAUTHENTICATED"


def test_a_login_that_took_too_long_is_over(oidc: Oidc, clock: Clock) -> None:
    address, state = oidc.begin(REDIRECT)
    brought = come_back(address)
    clock.ahead = dt.timedelta(minutes=11)
    with pytest.raises(PenstockError):
        oidc.finish(state, brought["code"])


def test_the_code_of_another_login_is_of_no_use(oidc: Oidc) -> None:
    stolen = come_back(oidc.begin(REDIRECT)[0])
    _, state = oidc.begin(REDIRECT)
    with pytest.raises(PenstockError) as raised:
        oidc.finish(state, stolen["code"])
    assert raised.value.code == "UNAUTHENTICATED"


def test_a_good_token_names_the_person(oidc: Oidc, issuer: Issuer) -> None:
    identity = oidc.identity(issuer.token("n"), "n")
    assert (identity.who, identity.role) == ("ann@example.org", Role.AUTHOR)


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "http://127.0.0.1:9"},
        {"aud": "someone-else"},
        {"aud": [CLIENT, "someone-else"]},
        {"aud": None},
        {"exp": int(time.time()) - 3600},
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"nonce": "of another login"},
        {"nonce": None},
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(oidc: Oidc, issuer: Issuer, changed: dict[str, Any]) -> None:
    assert refused(oidc, issuer.token("n", **changed)) == "UNAUTHENTICATED"


def test_several_audiences_need_to_name_the_party(oidc: Oidc, issuer: Issuer) -> None:
    token = issuer.token("n", aud=[CLIENT, "other"], azp=CLIENT)
    assert oidc.identity(token, "n").who == "ann@example.org"


def test_a_signature_of_another_key_is_refused(oidc: Oidc, issuer: Issuer) -> None:
    issuer.signing = RSAKey.generate_key(2048, {"kid": "one"})
    assert refused(oidc, issuer.token("n")) == "UNAUTHENTICATED"


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
def test_no_signature_is_refused(oidc: Oidc, issuer: Issuer) -> None:
    issuer.header = {"alg": "none"}
    assert refused(oidc, issuer.token("n")) == "UNAUTHENTICATED"


def test_the_public_key_is_no_shared_secret(oidc: Oidc, issuer: Issuer) -> None:
    def encoded(content: bytes) -> bytes:
        return base64.urlsafe_b64encode(content).rstrip(b"=")

    _, claims, _ = issuer.token("n").split(".")
    signed = encoded(b'{"alg":"HS256","kid":"one"}') + b"." + claims.encode()
    seal = hmac.digest(issuer.key.as_pem(private=False), signed, "sha256")
    assert refused(oidc, (signed + b"." + encoded(seal)).decode()) == "UNAUTHENTICATED"


def test_an_issuer_may_change_its_keys(oidc: Oidc, issuer: Issuer, clock: Clock) -> None:
    assert oidc.identity(issuer.token("n"), "n").who == "ann@example.org"
    issuer.rotate("two")
    clock.ahead = dt.timedelta(seconds=61)
    assert oidc.identity(issuer.token("n", exp=int(time.time()) + 600), "n").who == "ann@example.org"


def test_bad_tokens_do_not_make_the_server_ask_again_and_again(oidc: Oidc, issuer: Issuer) -> None:
    oidc.identity(issuer.token("n"), "n")
    issuer.signing = RSAKey.generate_key(2048, {"kid": "one"})
    for _ in range(5):
        refused(oidc, issuer.token("n"))
    assert issuer.requests.count("/keys") == 1


def test_someone_without_a_known_group_has_no_role(oidc: Oidc, issuer: Issuer) -> None:
    issuer.claims["groups"] = "visitors"
    assert refused(oidc, issuer.token("n")) == "FORBIDDEN"


def test_an_issuer_by_another_name_is_refused(oidc: Oidc, issuer: Issuer) -> None:
    issuer.calls_itself = "https://elsewhere.example.org"
    with pytest.raises(PenstockError) as raised:
        oidc.begin(REDIRECT)
    assert raised.value.code == "UNAUTHENTICATED"


def test_only_addresses_that_nobody_can_change_are_trusted() -> None:
    assert trusted_address("https://example.org/keys")
    assert trusted_address("http://127.0.0.1:8080/keys")
    assert not trusted_address("http://example.org/keys")
    assert not trusted_address("http://127.0.0.1.example.org/keys")
    assert not trusted_address("ftp://localhost/keys")
