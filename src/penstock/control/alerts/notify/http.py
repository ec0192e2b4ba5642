"""Posting JSON, for the channels that take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from penstock.control.alerts.notify.base import TIMEOUT_SECONDS, NotSent

_SCHEMES = ("http", "https")


def is_address(url: str) -> bool:
    """Whether it is the full address of a web server."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and bool(parts.hostname)


def post(url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Posts once and follows no redirects. What fails is said without the address, which may be secret."""
    if not is_address(url):
        raise NotSent("the address is not an http or https URL")
    try:
        with httpx.stream("POST", url, json=dict(body), headers=dict(headers), timeout=TIMEOUT_SECONDS) as answer:
            status = answer.status_code
    except httpx.TimeoutException:
        raise NotSent(f"no answer within {TIMEOUT_SECONDS:g} seconds") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise NotSent(f"the server could not be reached ({type(error).__name__})") from None
    if not 200 <= status < 300:
        raise NotSent(f"the server answered with status {status}")
