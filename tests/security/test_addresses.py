"""No pipeline reaches a server that it may not: neither by a name that means another today, nor by being sent there."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.components.looking import problems_of
from tests.control.test_policy import _configs_of_components
from tests.security.attacker import LIGHT_TARGET, AttackedSite

from penstock.access import limits
from penstock.access.addresses import AddressLimits
from penstock.access.limits import Access, limited
from penstock.access.paths import PathLimits
from penstock.access.secrets import SecretLimits
from penstock.components.base import SinkContext
from penstock.components.shared.delta_table import located
from penstock.components.shared.registry_field import Registry
from penstock.components.shared.s3 import S3, S3Failed, access
from penstock.components.shared.schema_registry import client
from penstock.components.shared.storage import S3Storage
from penstock.components.sinks.kafka import Kafka as KafkaSink
from penstock.components.sinks.mysql import Mysql
from penstock.components.sinks.postgres import Postgres
from penstock.components.sources.kafka import Kafka as KafkaSource
from penstock.components.sources.sql_poll import SqlPoll
from penstock.control.config import AddressRules
from penstock.errors import PenstockError
from penstock.spec.fields import Holds, held_by
from penstock.testing.processes import until

if TYPE_CHECKING:
    from tests.servers.s3 import S3 as StoreServer

HERE = Path("/")
CANARY = "canary-of-the-cloud"
OPENED: dict[tuple[str, str], Callable[[str], object]] = {
    ("Kafka of sources", "bootstrap"): lambda host: problems_of(
        KafkaSource(bootstrap=f"{host}:9092", topic="t"), "n", HERE
    ),
    ("Kafka of sinks", "bootstrap"): lambda host: problems_of(
        KafkaSink(bootstrap=f"{host}:9092", topic="t"), "n", HERE
    ),
    ("SqlPoll of sources", "url"): lambda host: problems_of(
        SqlPoll(url=f"postgresql://u@{host}/d", table="t", order="id"), "n", HERE
    ),
    ("Postgres of sinks", "url"): lambda host: Postgres(url=f"postgresql://u@{host}/d", table="t").open(context()),
    ("Mysql of sinks", "url"): lambda host: Mysql(url=f"mysql://u@{host}/d", table="t").open(context()),
    ("Registry of shared", "url"): lambda host: client(Registry(url=f"http://{host}:8081")),
    ("S3 of shared", "endpoint"): lambda host: access("s3a://b/x", S3(endpoint=f"http://{host}")),
}
"""How the process of a pipeline opens what each field names."""


def context() -> SinkContext:
    nothing: Any = None
    return SinkContext(nothing, "n", HERE, "p", "l", 1, {})


def allowed(hosts: tuple[str, ...] = ()) -> Access:
    return Access(PathLimits(("/",)), AddressLimits(AddressRules().schemes, hosts), SecretLimits())


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Addresses by name; all other names have none."""
    known: dict[str, str] = {}

    def look_up(host: str, *_: object, **__: object) -> list[Any]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


def test_every_field_with_an_address_is_tried_here() -> None:
    found = {
        (f"{config.__name__} of {config.__module__.split('.')[2]}", name)
        for config in _configs_of_components()
        for name in config.model_fields
        if held_by(config, name) is Holds.ADDRESS
    }
    assert found == set(OPENED)


@pytest.mark.parametrize("place", OPENED, ids=" ".join)
def test_what_an_address_stands_for_is_looked_at_before_it_is_opened(
    place: tuple[str, str], names: dict[str, str]
) -> None:
    names["innocent.example.com"] = "169.254.169.254"
    with limited(allowed()), pytest.raises(PenstockError) as refused:
        OPENED[place]("innocent.example.com")
    assert refused.value.code == "URL_NOT_ALLOWED"
    assert "169.254.169.254" in str(refused.value.problems[0].message)


@pytest.mark.parametrize("place", OPENED, ids=" ".join)
@pytest.mark.parametrize("host", ["10.0.0.7", "evil.example.com", "0x7f000001", "127.1", "[::1]", "good.example.com."])
def test_only_hosts_that_are_named_are_opened(place: tuple[str, str], host: str, names: dict[str, str]) -> None:
    with limited(allowed(("good.example.com",))):
        if host == "good.example.com.":
            with pytest.MonkeyPatch.context() as patch:
                # It is allowed, so it would be asked: that is noticed instead.
                asked: list[str] = []

                def noticed(_: AddressLimits, name: str) -> str:
                    asked.append(name)
                    return "seen"

                patch.setattr(AddressLimits, "refusal_of_server", noticed)
                with pytest.raises(PenstockError, match="seen"):
                    OPENED[place](host)
                assert asked == [host]
            return
        with pytest.raises(PenstockError) as refused:
            OPENED[place](host)
    assert refused.value.code == "URL_NOT_ALLOWED"


# --- sent to another server ------------------------------------------------------------------------------------


class Server:
    """Answers every request in the same way, and notes what was asked."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                asked.append(f"{self.command} {self.path}")
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body)), "ETag": '"1"'}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_CONNECT = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def hidden() -> Iterator[Server]:
    """What no pipeline may reach: it stands for the metadata of a cloud."""
    server = Server(200, {"Last-Modified": "Wed, 21 Oct 2026 07:28:00 GMT"}, json.dumps({"key": CANARY}).encode())
    yield server
    server.close()


@pytest.fixture(params=[301, 302, 303, 307, 308])
def sending(request: pytest.FixtureRequest, hidden: Server) -> Iterator[Server]:
    """An object store of an attacker, which sends everyone on."""
    server = Server(request.param, {"Location": f"{hidden.url}/latest/meta-data/iam"})
    yield server
    server.close()


def at(server: Server, hosts: tuple[str, ...] = ()) -> Any:
    s3 = S3(endpoint=server.url, access_key="a", secret_key="b")
    with limited(allowed(hosts)):
        return access("s3a://bucket/folder", s3)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that do not try again."""
    from penstock.components.shared import s3

    plain = s3.store
    monkeypatch.setattr("penstock.components.shared.storage.store", lambda found: plain(found, hasty=True))


def test_an_object_store_sends_nobody_to_another_server(sending: Server, hidden: Server, hasty: None) -> None:
    storage = S3Storage(at(sending))
    for act in (lambda: storage.read("a.json"), lambda: storage.write("a.json", "x"), lambda: storage.names("")):
        with pytest.raises(S3Failed) as failed:
            act()
        assert CANARY not in str(failed.value)
    assert sending.asked
    assert hidden.asked == []


def test_a_delta_table_is_not_read_from_another_server(sending: Server, hidden: Server) -> None:
    from deltalake import DeltaTable

    found = at(sending)
    with pytest.raises(Exception) as failed:
        DeltaTable("s3://bucket/folder", storage_options={**found.delta_options(), "max_retries": "0"})
    assert CANARY not in str(failed.value)
    assert sending.asked
    assert hidden.asked == []


def test_a_store_that_is_its_own_proxy_is_used_as_ever(s3: StoreServer, s3_bucket: str) -> None:
    from deltalake import DeltaTable, write_deltalake

    own = S3(endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key, region=s3.region)
    with limited(allowed()):
        found = access(f"s3a://{s3_bucket}/folder", own)
    assert found.client_options["proxy_url"] == s3.endpoint
    storage = S3Storage(found)
    storage.write("a.json", "one")
    assert (storage.create("a.json", "two"), storage.create("b.json", "three")) == (False, True)
    assert (storage.read("a.json"), storage.names("")) == ("one", ["a.json", "b.json"])
    storage.delete(["a.json"])
    assert storage.read("a.json") is None
    table = f"s3a://{s3_bucket}/table"
    write_deltalake(table, pa.table({"n": [1, 2]}), storage_options=found.delta_options())
    assert DeltaTable(table, storage_options=found.delta_options()).to_pyarrow_table().to_pylist() == [
        {"n": 1},
        {"n": 2},
    ]


def test_a_host_that_the_operator_has_named_is_trusted_with_where_it_sends(sending: Server) -> None:
    assert at(sending, ("127.0.0.1",)).elsewhere
    assert not at(sending).elsewhere
    assert access("s3a://bucket/folder", S3(endpoint=sending.url)).elsewhere, "nobody has limited this process"
    assert limits.current() is None


def test_a_store_that_is_reached_by_https_sends_nobody_to_one_without(names: dict[str, str]) -> None:
    with limited(allowed()):
        for s3 in (S3(endpoint="https://minio.example.com"), S3(region="eu-west-1")):
            found = access("s3a://bucket/folder", s3)
            assert found.client_options == {"allow_http": "false"}
            assert found.delta_options()["allow_http"] == "false"


def test_a_table_at_a_store_that_may_not_be_reached_is_not_looked_for(names: dict[str, str]) -> None:
    names["innocent.example.com"] = "169.254.169.254"
    with limited(allowed()), pytest.raises(PenstockError) as refused:
        located("s3a://bucket/x", S3(endpoint="http://innocent.example.com"), None)
    assert refused.value.code == "URL_NOT_ALLOWED"


# --- a whole server --------------------------------------------------------------------------------------------

PROJECT = "projects: {lab: {labels: {team: lab}, secrets: {env: ['LAB_*']}}}\n"
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: astray, labels: {{team: lab}}}}
spec:
  sources:
    table:
      delta:
        path: "s3a://bucket/folder"
        s3: {{endpoint: "{url}", accessKey: "${{secret:env/LAB_KEY}}", secretKey: "${{secret:env/LAB_KEY}}"}}
  sinks:
    out: {{from: table, sqlite: {{path: ./astray.db, table: t}}}}
"""


@pytest.mark.spark
def test_an_author_is_not_told_what_another_server_says(tmp_path: Path, hidden: Server) -> None:
    """Neither in a preview nor of a run."""
    sending = Server(307, {"Location": f"{hidden.url}/latest/meta-data/iam"})
    with AttackedSite(tmp_path / "site", LIGHT_TARGET + PROJECT, {"LAB_KEY": "key-of-lab"}) as site:
        author = site.caller("author", team="lab")
        text = PIPELINE.format(url=sending.url)
        told = [author.preview(text, "table").text]
        answer = author.apply(text)
        assert answer.status_code == 200, answer.text
        until(lambda: author.get("/pipelines/astray/exceptions").json()["items"], "it fails", every=0.2)
        told += [author.get(f"/pipelines/astray/{what}").text for what in ("exceptions", "description", "logs")]
    sending.close()
    assert any(asked.startswith("GET") for asked in sending.asked)
    assert hidden.asked == []
    assert [text for text in told if CANARY in text] == []
