"""A small issuer of OpenID Connect on this machine: it checks PKCE and signs with a key of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "penstock", "canary-client-secret"


class Issuer:
    """`claims` are added to every id token; the rest can be bent by a test to be wrong."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.claims: dict[str, Any] = {"sub": "u1", "email": "ann@example.org", "groups": ["data"]}
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "one"}
        self.signing: Any = self.key
        self.calls_itself = self.address
        self.codes: dict[str, dict[str, str]] = {}
        self.requests: list[str] = []

    def rotate(self, kid: str) -> None:
        self.key = self.signing = RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})
        self.header = {"alg": "RS256", "kid": kid}

    def token(self, for_login: str, **changed: Any) -> str:
        now = int(time.time())
        claims = {"iss": self.address, "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": for_login, **self.claims}
        claims |= changed
        claims = {key: value for key, value in claims.items() if value is not None}
        return jwt.encode(self.header, claims, self.signing, algorithms=[self.header["alg"]])

    def discovery(self) -> dict[str, Any]:
        paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        return {"issuer": self.calls_itself, **{name: f"{self.address}/{path}" for name, path in paths.items()}}

    def authorize(self, query: dict[str, str]) -> str:
        """Logs the person in at once; where the browser goes then."""
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: dict[str, str]) -> dict[str, Any] | None:
        begun = self.codes.pop(form.get("code", ""), None)
        if begun is None or form.get("client_secret") != SECRET:
            return None
        hashed = hashlib.sha256(form["code_verifier"].encode()).digest()
        proof = base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
        if proof != begun["code_challenge"] or form["redirect_uri"] != begun["redirect_uri"]:
            return None
        return {"token_type": "Bearer", "id_token": self.token(begun["nonce"])}


def _handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            issuer.requests.append(parts.path)
            if parts.path == "/.well-known/openid-configuration":
                self._answer(issuer.discovery())
            elif parts.path == "/keys":
                self._answer({"keys": [issuer.key.as_dict(private=False)]})
            elif parts.path == "/authorize":
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                self.send_response(302)
                self.send_header("Location", issuer.authorize(query))
                self.end_headers()
            else:
                self._answer(None)

        def do_POST(self) -> None:
            issuer.requests.append(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(issuer.exchange({key: values[0] for key, values in parse_qs(body).items()}))

        def _answer(self, content: dict[str, Any] | None) -> None:
            self.send_response(400 if content is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(content or {}).encode())

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    issuer = Issuer(server.server_address[1])
    server.RequestHandlerClass = _handler(issuer)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
