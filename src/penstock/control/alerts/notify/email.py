"""A channel that sends mail."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Literal

from pydantic import ValidationInfo, field_validator

from penstock.control.alerts.notify.base import TIMEOUT_SECONDS, NotSent
from penstock.control.alerts.notify.message import Message
from penstock.spec.fields import Config, Holds, field, unfit

Protection = Literal["starttls", "tls", "none"]


class Email(Config):
    """Sends a plain text mail."""

    host: str = field(holds=Holds.ADDRESS, doc="The mail server.")
    port: int = field(587, ge=1, le=65535, doc="Its port.")
    username: str | None = field(None, holds=Holds.LOGIN, doc="The name to log in with; without one there is no login.")
    password: str | None = field(None, secret=True, doc="The password, as a reference to a secret.")
    security: Protection = field(
        "starttls", doc="starttls: encrypted after the greeting. tls: from the start. none: not at all."
    )
    sender: str = field(alias="from", doc="The address that mails come from.")
    to: tuple[str, ...] = field(min_length=1, doc="Who gets them.")

    @field_validator("sender", "to")
    @classmethod
    def _are_addresses(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for address in [value] if isinstance(value, str) else value:
            name, at, host = address.partition("@")
            if not (name and at and host) or any(sign.isspace() or sign in ",;<>" for sign in address):
                raise unfit(f"'{address}' is not an address", "Write for example `team@example.com`.")
        return value

    @field_validator("security")
    @classmethod
    def _protects_the_password(cls, value: Protection, info: ValidationInfo) -> Protection:
        if value == "none" and info.data.get("password") is not None:
            raise unfit("the password would be sent for all to read", "Use `starttls` or `tls`.")
        return value

    def send(self, message: Message, alert: int) -> None:
        mail = mail_of(message, alert, self.sender, self.to)
        try:
            with self._connected() as server:
                if self.username is not None:
                    server.login(self.username, self.password or "")
                refused = server.send_message(mail)
        except smtplib.SMTPAuthenticationError:
            raise NotSent("the mail server refused the login") from None
        except smtplib.SMTPResponseException as error:
            raise NotSent(f"the mail server answered with status {error.smtp_code}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise NotSent(f"the mail could not be handed over ({type(error).__name__})") from None
        if refused:
            raise NotSent(f"the mail server refused {len(refused)} of {len(self.to)} addresses")

    def _connected(self) -> smtplib.SMTP:
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context())
        server = smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_SECONDS)
        try:
            if self.security == "starttls":
                server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
        return server


def mail_of(message: Message, alert: int, sender: str, to: tuple[str, ...]) -> EmailMessage:
    """The mail; sent again it has the same Message-ID, and what belongs to one alert is one conversation."""
    mail = EmailMessage()
    mail["Subject"] = message.headline
    mail["From"], mail["To"] = sender, ", ".join(to)
    mail["Date"] = format_datetime(message.at)
    thread = f"<penstock-{message.pipeline}-{alert}@{sender.partition('@')[2]}>"
    mail["Message-ID"] = thread.replace("@", f"-{message.transition}@", 1)
    mail["References"] = thread
    mail.set_content("\n".join(message.lines()) + "\n")
    return mail
