"""Real receivers of notifications on this machine: a web server and a mail server that keep what they are given."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.servers.base import HOST, free_port


@dataclass
class WebReceiver:
    """Answers with the statuses it was given, one after the other, and then with 200."""

    url: str
    statuses: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def web_receiver() -> Iterator[WebReceiver]:
    received = WebReceiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.paths.append(self.path)
            received.bodies.append(json.loads(body))
            received.headers.append({key.lower(): value for key, value in self.headers.items()})
            status = received.statuses.pop(0) if received.statuses else 200
            self.send_response(status)
            if status in (301, 302, 307):
                self.send_header("Location", f"{received.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    received.url = f"http://{HOST}:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class MailReceiver:
    """Refuses recipients that it is told to."""

    port: int
    refused: set[str] = field(default_factory=set)
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such address"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 taken"


@contextmanager
def mail_receiver(password: str | None = None, certificate: Path | None = None) -> Iterator[MailReceiver]:
    """With a password it takes mails only from who has logged in as `penstock`; with a certificate it encrypts."""
    received = MailReceiver(free_port())

    def login(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        received.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=received.logins[-1] == ("penstock", password), handled=False)

    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    needs: dict[str, Any] = {"authenticator": login, "auth_required": True} if password else {}
    controller = Controller(received, hostname=HOST, port=received.port, tls_context=context, **needs)
    controller.start()
    try:
        yield received
    finally:
        controller.stop()


def certificate_for_this_machine(folder: Path) -> Path:
    """A certificate that signs itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "penstock tests")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "mail.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path
