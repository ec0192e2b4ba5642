"""No request stops the server: what viewers and authors may ask leaves threads, memory and time for everybody else."""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.control.api.server import Client, Server, listening
from tests.control.auth.issuer import CLIENT, SECRET, Issuer, running_issuer
from tests.security.attacker import AttackedSite, Caller, codes
from tests.security.test_hostile_files import avro_with, doubled

from penstock.control.api import state
from penstock.control.api.queues import SIZES, Kind
from penstock.control.auth.oidc import Oidc, login_key
from penstock.control.auth.roles import Role
from penstock.control.config import Limits, OidcSettings, ServerConfig
from penstock.testing.processes import until

REDIRECT = "http://server/api/v1/login/callback"
SAME = {"Origin": "http://server", "Host": "server"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, ServerConfig(limits=Limits(requests=100_000)))
    yield server
    server.close()


class Question:
    """Stands for the process that reads state: it answers when it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = 0

    def __call__(self, *_: object, **__: object) -> dict[str, object]:
        self.asked += 1
        assert self.gate.wait(60)
        return {"answer": []}


@contextmanager
def occupied(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Question, list[str]]]:
    """A server of which all threads that may ask for state wait for answers, and all places to wait are taken."""
    server.client(Role.AUTHOR).apply("a")
    server.services.folder.state("a").mkdir(parents=True)
    question, size = Question(), SIZES[Kind.STATE]
    monkeypatch.setattr(state, "ask", question)
    tokens = [server.token(role) for role in Role]
    with listening(server) as url, concurrent.futures.ThreadPoolExecutor(32) as pool:
        for token in tokens:
            for _ in range(size.of_token + size.waiting_of_token):
                pool.submit(get, url, "/api/v1/pipelines/a/ledger/windows", token)
        queue = server.services.queues[Kind.STATE]
        until(lambda: (queue.running, queue.waiting) == (size.threads, size.waiting), "all is taken", 60)
        assert question.asked == size.threads
        try:
            yield url, question, tokens
        finally:
            question.gate.set()


def get(url: str, path: str, token: str | None = None) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.get(url + path, headers=headers, timeout=60, trust_env=False)


def test_while_all_threads_that_ask_for_state_are_taken_all_else_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with occupied(server, monkeypatch) as (url, question, tokens):
        assert get(url, "/healthz").json() == {"status": "ok"}
        assert get(url, "/readyz").status_code == 200
        for token in tokens:
            assert get(url, "/api/v1/pipelines/a", token).status_code == 200
        newcomer = server.token(Role.VIEWER, {})
        refused = get(url, "/api/v1/pipelines/a/ledger", newcomer)
        assert (refused.status_code, codes(refused)) == (503, ["SERVER_BUSY"])
        assert int(refused.headers["Retry-After"]) == SIZES[Kind.STATE].retry
        assert get(url, "/api/v1/pipelines/a", newcomer).status_code == 200
        assert question.asked == SIZES[Kind.STATE].threads
    queue = server.services.queues[Kind.STATE]
    until(lambda: (queue.running, queue.waiting) == (0, 0), "the queue is empty", 60)


def test_a_token_that_asks_without_end_is_told_to_wait_and_others_are_not(tmp_path: Path) -> None:
    server = Server(tmp_path, ServerConfig(limits=Limits(requests=2)))
    greedy, modest = server.client(Role.VIEWER), server.client(Role.OPERATOR)
    answers = [greedy.get("/api/v1/whoami") for _ in range(20)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert codes(refused[0]) == ["TOO_MANY_REQUESTS"]
    assert int(refused[0].headers["Retry-After"]) >= 1
    assert modest.get("/api/v1/whoami").status_code == 200
    assert all(server.client(None).get("/healthz").status_code == 200 for _ in range(20))
    server.close()


# --- login -----------------------------------------------------------------------------------------------------


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


def oidc_server(folder: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, **config: object) -> Server:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    settings = OidcSettings(
        issuer=issuer.address,
        client_id=CLIENT,
        client_secret="${secret:env/OIDC_SECRET}",
        redirect=REDIRECT,
        roles={"data": Role.OPERATOR},
    )

    def now() -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    made = Server(
        folder,
        ServerConfig(oidc=settings, limits=Limits(requests=100_000), **config),
        oidc=Oidc(settings, now, key=login_key(folder)),
    )
    made.time = now()
    return made


def begun(server: Server) -> tuple[str, str]:
    """A login that somebody began: the cookie of the browser, and where the issuer sends it back."""
    answer = server.client(None).get("/api/v1/login/oidc")
    assert answer.status_code == 303, answer.text
    back = httpx.get(answer.headers["Location"], trust_env=False).headers["Location"].removeprefix("http://server")
    return f"penstock_login={answer.cookies['penstock_login']}", back


def test_logins_that_are_begun_and_never_finished_take_no_memory(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = oidc_server(tmp_path, issuer, monkeypatch)
    oidc = server.services.oidc
    assert oidc is not None
    oidc.begin(REDIRECT)

    def held() -> dict[str, int]:
        return {name: len(value) for name, value in vars(oidc).items() if hasattr(value, "__len__")}

    before = held()
    for _ in range(20_000):
        oidc.begin(REDIRECT)
    assert held() == before
    cookie, back = begun(server)
    assert Client(server.app, {"Cookie": cookie}).get(back).status_code == 200


def test_a_login_goes_on_with_the_server_that_follows(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = oidc_server(tmp_path, issuer, monkeypatch)
    cookie, back = begun(first)
    first.close()
    following = oidc_server(tmp_path, issuer, monkeypatch)
    assert Client(following.app, {"Cookie": cookie}).get(back).status_code == 200
    again = Client(following.app, {"Cookie": cookie}).get(back)
    assert (again.status_code, codes(again)) == (401, ["UNAUTHENTICATED"])


def test_bad_callbacks_from_the_same_address_lock_nobody_out(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = oidc_server(tmp_path, issuer, monkeypatch)
    made_up = "a.1.b"
    attacker = Client(server.app, {"Cookie": f"penstock_login={made_up}"})
    statuses = Counter(attacker.get(f"/api/v1/login/callback?state={made_up}&code=x").status_code for _ in range(30))
    assert statuses == {401: 10, 429: 20}
    cookie, back = begun(server)
    assert Client(server.app, {"Cookie": cookie}).get(back).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://evil.example.org"}, {"Sec-Fetch-Site": "cross-site"}])
def test_another_site_cannot_log_a_browser_in(server: Server, headers: dict[str, str]) -> None:
    answer = server.client(None).post("/api/v1/login", {"token": server.token(Role.VIEWER)}, headers=headers)
    assert (answer.status_code, codes(answer), answer.cookies.get("penstock_session")) == (403, ["FORBIDDEN"], None)
    honest = server.client(None).post("/api/v1/login", {"token": server.token(Role.VIEWER)}, headers=SAME)
    assert honest.status_code == 200


# --- addresses -------------------------------------------------------------------------------------------------


def failures(server: Server, peer: str, forwarded: Callable[[int], str], times: int = 12) -> list[int]:
    """What bad tokens are answered that come over a peer which says who sent them."""
    asking = Client(server.app, {}, address=peer)
    bad = {"token": "pst_" + "x" * 43}
    return [
        asking.post("/api/v1/login", bad, headers={**SAME, "X-Forwarded-For": forwarded(number)}).status_code
        for number in range(times)
    ]


def test_an_address_that_a_client_makes_up_is_ignored(server: Server) -> None:
    assert failures(server, "192.0.2.7", lambda number: f"198.51.100.{number}") == [401] * 10 + [429] * 2


def test_behind_a_trusted_proxy_each_client_counts_for_itself(tmp_path: Path) -> None:
    config = ServerConfig(trusted_proxies=("10.0.0.0/8",), limits=Limits(requests=100_000))
    server = Server(tmp_path, config)
    assert failures(server, "10.1.1.1", lambda _: "198.51.100.1") == [401] * 10 + [429] * 2
    assert failures(server, "10.1.1.1", lambda _: "198.51.100.2", 1) == [401]
    # What the client itself wrote stands before what the proxy appended.
    assert failures(server, "10.1.1.1", lambda number: f"203.0.113.{number}, 198.51.100.3") == [401] * 10 + [429] * 2
    assert failures(server, "192.0.2.7", lambda number: f"198.51.100.{number + 9}") == [401] * 10 + [429] * 2
    server.close()


# --- a whole server --------------------------------------------------------------------------------------------

HOSTILE = {
    "values": "x: [" + "1, " * 150_000 + "1]",
    "depth": "x: " + "[" * 400_000,
    "keys": "".join(f"spe{number}: 1\n" for number in range(60_000)),
    "references": "x: '" + "${secret:" * 60_000 + "'",
    "folded": "x: '" + "a\n   " * 100_000 + "'",
    "digits": "x: " + "1" * 500_000,
    "types": avro_with([{"name": "r", "type": doubled(40)}]),
    "comments": "apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: x}\nspec:\n  sources: {s: {generator: "
    "{dataset: page_views, rows: 1}}}\n  steps: {q: {from: s, sql: 'SELECT reflect" + "/**/" * 40 + " FROM s'}}\n"
    "  sinks: {o: {from: q, console: {}}}\n",
}  # fmt: skip
SECONDS = 8.0


def health(url: str, until_: Callable[[], bool]) -> list[float]:
    """How long each of steady questions for `/healthz` took."""
    took = []
    with httpx.Client(trust_env=False, timeout=60) as client:
        while not until_():
            began = time.perf_counter()
            assert client.get(f"{url}/healthz").status_code == 200
            took.append(time.perf_counter() - began)
            threading.Event().wait(0.02)
    return took


def test_healthz_answers_while_a_viewer_and_authors_ask_for_the_most_expensive_things(
    attacked: AttackedSite, author_a: Caller, author_b: Caller, viewer: Caller, record_property: Callable[..., None]
) -> None:
    url = attacked.site.server.url
    over = threading.Event()
    statuses: Counter[int] = Counter()

    def attack(ask: Callable[[], httpx.Response]) -> None:
        while not over.is_set():
            statuses[ask().status_code] += 1

    deadline = time.monotonic() + SECONDS / 4
    calm = health(url, lambda: time.monotonic() > deadline)
    many = "&".join(f"pipeline=p{number}" for number in range(50))
    files = [partial(author.validate, text) for text in HOSTILE.values() for author in (author_a, author_b)]
    looks = [partial(viewer.get, f"/trends?points=500&{many}"), partial(viewer.get, "/pipelines/none/state")]
    asked = [*files, *looks * 4, *[partial(author_a.preview, HOSTILE["keys"], "x")] * 4]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        for each in asked:
            pool.submit(attack, each)
        deadline = time.monotonic() + SECONDS
        try:
            attacked_ = health(url, lambda: time.monotonic() > deadline)
        finally:
            over.set()
    record_property("calm_ms", [round(max(calm) * 1000), round(statistics.median(calm) * 1000, 1)])
    record_property("attacked_ms", [round(max(attacked_) * 1000), round(statistics.median(attacked_) * 1000, 1)])
    print(f"calm: {max(calm):.3f} s at most, {statistics.median(calm):.4f} s usually")
    print(f"attacked: {max(attacked_):.3f} s at most, {statistics.median(attacked_):.4f} s usually; {dict(statuses)}")
    assert not [status for status in statuses if status >= 500 and status != 503]
    assert statuses[429] + statuses[503] > 0
    # A machine that does other things too adds its own delays, which the calm figures show.
    assert statistics.median(attacked_) < max(0.1, 30 * statistics.median(calm))
    assert statistics.quantiles(attacked_, n=100)[98] < max(0.5, 10 * max(calm))
    assert author_a.get("/whoami").status_code in (200, 429)


# --- a viewer and a pipeline with state --------------------------------------------------------------------------

WATCHED = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: watched, labels: {team: a}}
spec:
  sources:
    views: {generator: {dataset: page_views, rows: 10000000, maxRowsPerBatch: 200}, eventTime: {column: ts}}
  steps:
    counted: {from: views, window: {by: [country], size: 1 minute, values: {seen: count(*)}}}
  sinks:
    out: {from: counted, sqlite: {path: ./watched.db, table: t}}
  run: {trigger: 1 second}
  ledger: {window: 1 hour}
"""
EXPENSIVE = (
    "/pipelines/watched/state", "/pipelines/watched/ledger", "/pipelines/watched/ledger/windows",
    "/pipelines/watched/explain", "/pipelines/watched/logs?limit=1000", "/pipelines/watched/description",
    "/pipelines?limit=1000", "/events?limit=1000",
    "/trends?points=500&" + "&".join(f"pipeline=p{number}" for number in range(50)),
)  # fmt: skip
"""What a viewer may ask for that takes the most; the first two start a process, the first and `explain` Spark."""
IDLE = """\
import http.server
class Healthy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
print(server.server_port, flush=True)
server.serve_forever()
"""
PROBE = """\
import http.client, json, sys, time
hosts, took = [http.client.HTTPConnection("127.0.0.1", int(port), timeout=60) for port in sys.argv[1:3]], []
deadline = time.monotonic() + float(sys.argv[3])
while time.monotonic() < deadline:
    pair = []
    for host in hosts:
        began = time.perf_counter()
        host.request("GET", "/healthz")
        answer = host.getresponse()
        answer.read()
        assert answer.status == 200
        pair.append(time.perf_counter() - began)
    took.append(pair)
    time.sleep(0.02)
print(json.dumps(took))
"""
"""Asks two servers in turn, in a process of its own, as the threads of a test wait for each other."""


@contextmanager
def idle_server(folder: Path) -> Iterator[int]:
    """The port of a server that has nothing to do: what it takes to answer is what the machine takes."""
    with subprocess.Popen([sys.executable, "-c", IDLE], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def probed(folder: Path, port: int, seconds: float) -> list[tuple[float, float]]:
    """How long an idle server and this one took to answer, again and again."""
    with idle_server(folder) as idle:
        command = [sys.executable, "-c", PROBE, str(idle), str(port), str(seconds)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds + 120, check=True)
    return [(usual, took) for usual, took in json.loads(done.stdout)]


def test_healthz_answers_within_a_tenth_of_a_second_while_a_viewer_asks_for_all_it_may(
    attacked: AttackedSite, author_a: Caller, viewer: Caller, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    """The machine is busy with what the viewers have it start, so a server that has nothing to do is asked as well."""
    over = threading.Event()
    answers: Counter[tuple[str, int]] = Counter()

    def attack(path: str) -> None:
        while not over.is_set():
            answers[(path, viewer.get(path).status_code)] += 1

    assert author_a.apply(WATCHED).status_code == 200
    try:
        until(lambda: viewer.get(EXPENSIVE[0]).status_code == 200, "it has state", 150, every=0.5)
        with concurrent.futures.ThreadPoolExecutor(2 * len(EXPENSIVE)) as pool:
            for path in EXPENSIVE * 2:
                pool.submit(attack, path)
            try:
                took = probed(tmp_path, int(attacked.site.server.url.rpartition(":")[2]), 15)
            finally:
                over.set()
    finally:
        author_a.delete("/pipelines/watched")
    idle, busy = (statistics.quantiles(times, n=20) for times in zip(*took, strict=True))
    record_property("idle_ms", [round(1000 * idle[at]) for at in (9, 17)])
    record_property("attacked_ms", [round(1000 * busy[at]) for at in (9, 17)])
    print(
        f"of {len(took)}: {busy[9]:.3f} s usually, {busy[17]:.3f} s for 1 in 10; {idle[9]:.3f}, {idle[17]:.3f} s idle"
    )
    print(dict(answers))
    assert {status for _, status in answers} <= {200, 429, 503}
    assert all(answers[(path, 200)] + answers[(path, 503)] for path in EXPENSIVE), answers
    assert len(took) >= 50
    # A thread that answers waits for a core, and for others that hold the interpreter and wait for a core themselves.
    assert busy[9] < 0.1 + idle[17]
    assert busy[17] < 0.1 + 5 * idle[17]
