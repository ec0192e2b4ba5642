"""Asks the server: where it is and who asks come from the environment, and its errors are told as local ones are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from penstock.errors import CODES, Location, PenstockError, Problem
from penstock.spec.pipeline import PIPELINE_NAME

DEFAULT_URL = "http://127.0.0.1:8080"
_PATIENCE = httpx.Timeout(120.0, connect=10.0)
"""Seconds; files in Python take a while to be examined."""
_QUIET = httpx.Timeout(60.0, connect=10.0)
"""A server that lives sends something at least every 15 seconds to who follows it."""
OPENED = "opened"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Client:
    """A connection to one server. Every method raises PenstockError for whatever goes wrong."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        try:
            host = urlsplit(self.url).hostname
        except ValueError:
            host = None
        if not self.url.startswith(("http://", "https://")) or not host:
            raise PenstockError.of("USAGE", reason=f"PENSTOCK_URL is not an address: {url}", advice=_ADVICE)
        # A proxy of the network does not reach this machine.
        trust = host not in _LOOPBACK
        headers = {"Authorization": f"Bearer {token}"}
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=_PATIENCE, trust_env=trust)
        except UnicodeEncodeError:
            reason = "PENSTOCK_TOKEN holds characters that no token has"
            raise PenstockError.of("USAGE", reason=reason, advice="Copy it again.") from None

    def get(self, path: str, **query: Any) -> Any:
        return self._ask("GET", path, params=_without_none(query))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._ask("POST", path, json=body)

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path)

    def pages(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Every item of a list, however many pages it has."""
        after = None
        while True:
            page = self.get(path, **query, after=after)
            yield from page["items"]
            after = page["next"]
            if after is None:
                return

    def events(self, path: str, **query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """First that the server has answered, then server-sent events as they come, by kind; ends when it ends."""
        asked = _without_none(query)
        with self._told(), self._http.stream("GET", f"/api/v1{path}", params=asked, timeout=_QUIET) as answer:
            if answer.is_error:
                answer.read()
            _raise(answer)
            yield OPENED, {}
            yield from _parsed(answer.iter_lines())

    def _ask(self, method: str, path: str, **content: Any) -> Any:
        with self._told():
            answer = self._http.request(method, f"/api/v1{path}", **content)
        _raise(answer)
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise _strange(answer) from None

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise PenstockError.of("SERVER_UNREACHABLE", url=self.url, reason=reason) from error


_ADVICE = f"Write it as {DEFAULT_URL}."


def connected() -> Client:
    """The server that the environment names. A token is never looked for elsewhere: who asks should know as whom."""
    url, token = os.environ.get("PENSTOCK_URL") or DEFAULT_URL, os.environ.get("PENSTOCK_TOKEN", "").strip()
    if not token:
        raise PenstockError.of("TOKEN_MISSING", url=url)
    return Client(url, token)


def name_of_a_server(asked: Path) -> str | None:
    """The name of a pipeline on the server, if what was asked for is one and not a file."""
    return str(asked) if PIPELINE_NAME.fullmatch(str(asked)) and not asked.exists() else None


def part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="") or "%00"


def _without_none(query: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in query.items() if value is not None}


def _raise(answer: httpx.Response) -> None:
    if not answer.is_error:
        return
    try:
        problems = [told(item) for item in answer.json()["problems"]]
    except (ValueError, KeyError, TypeError):
        raise _strange(answer) from None
    raise PenstockError(problems)


def told(item: Mapping[str, Any]) -> Problem:
    """A problem as the server has told it; of one that only a newer server knows, its own words."""
    place = item["location"]
    location = None if place is None else Location(place["file"], place["line"], place["column"])
    if item["code"] in CODES:
        return Problem(item["code"], item["params"], location)
    return Problem("SERVER_ERROR", {"reason": f"{item['code']}: {item['message']}", "advice": item["hint"]}, location)


def _strange(answer: httpx.Response) -> PenstockError:
    reason = f"{answer.request.url.host} answered {answer.status_code}, and not as a Penstock server does"
    return PenstockError.of("SERVER_ERROR", reason=reason, advice="Check PENSTOCK_URL, and what is in between.")


def _parsed(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind, data = "message", ""
    for line in lines:
        name, _, value = line.partition(":")
        if name == "event":
            kind = value.strip()
        elif name == "data":
            data += value.strip()
        elif not line and data:
            yield kind, json.loads(data)
            kind, data = "message", ""
