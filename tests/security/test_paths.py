"""An author reads and writes below the folders of pipelines only, however a path is written and whatever lies there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.security.attacker import AttackedSite, Caller, codes

from penstock.control.config import ServerConfig
from penstock.control.policies import Policies
from penstock.control.projects import Projects
from penstock.testing.processes import until

HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {name}, labels: {{team: a}}}}
spec:
"""
READS = (
    HEAD
    + """\
  sources:
    s: {{files: {{path: "{path}"{more}}}, format: {{text: {{}}}}}}
  sinks:
    out: {{from: s, sqlite: {{path: ./{name}.db, table: t}}}}
"""
)
JOINS = (
    HEAD
    + """\
  sources:
    s: {{memory: {{schema: {{line: string}}, rows: [{{line: x}}]}}}}
  steps:
    j: {{from: s, join: {{table: {{path: "{path}", schema: {{line: string}}}}, on: [line]}}}}
  sinks:
    out: {{from: j, sqlite: {{path: ./{name}.db, table: t}}}}
"""
)
ASIDE = (
    HEAD
    + """\
  sources:
    s: {{memory: {{schema: {{line: string}}}}}}
  sinks:
    out: {{from: s, sqlite: {{path: ./{name}.db, table: t}}}}
  {aside}
"""
)
ESCAPES = [
    "./{./.,y}./admin.token", "{./.,y}./admin.token", "./{.,y/}./admin.token", "{..,y}/admin.token",
    "./{a,./.}{.,/.}/admin.token", "../admin.token", "a/../../admin.token", "./{a/..,b}/../admin.token",
    "{./.{./admin.token,x},y}", "{{./.,y}./admin.token,b/c}", "./{y/,.}./admin.token", "{a/,}../admin.token",
    "./%2e%2e/admin.token", "%2E%2e/admin.token", "./.%2e/admin.token", "a%2f..%2f..%2fadmin.token",
    "%252e%252e/admin.token",
    ".{./admin,./x}.token", "*/../../admin.token", "?{/,x}../../admin.token", "./\\\\.\\\\./admin.token",
]  # fmt: skip
OUTSIDE = [
    "/etc/passwd", "//etc/passwd", "/{/etc,x/y}/passwd", "/{etc,x}/passwd", "/e*/passwd", "/[e]tc/passwd", "~/.bashrc",
    "~root/x", "/proc/self/environ", "/", "/*", " /etc/passwd", "/etc/passwd ", "/etc/./passwd", "/etc//passwd",
]  # fmt: skip
ELSEWHERE = [
    "file:///etc/passwd", "FILE:/etc/passwd", "file:/etc/passwd", "file://localhost/etc/passwd", "File:///etc/passwd",
    "hdfs://h/x", "webhdfs://h/x", "viewfs:///x", "har:///x", "jar:file:/x!/y", "ftp://h/x", "local:/x", "S3A://b/x",
    "s3:/b/x", "s3n://b/x", "C:\\\\x", "classpath:x", "abfs://c@h/x", "gs://b/x", "x://y",
]  # fmt: skip


@pytest.mark.parametrize("template", [READS, JOINS], ids=["files", "table of a join"])
def test_no_spelling_of_a_path_leads_out_of_the_folder(author_a: Caller, attacked: AttackedSite, template: str) -> None:
    token = attacked.data / "admin.token"
    spelt = [*ESCAPES, *OUTSIDE, *ELSEWHERE, str(token), f"{own_files(attacked)}/{{./.,y}}./admin.token"]
    taken = []
    for path in spelt:
        answer = author_a.validate(template.format(name="escape", path=path, more=""))
        if not {"PATH_NOT_ALLOWED", "URL_NOT_ALLOWED"} & set(codes(answer)):
            taken.append((path, answer.text))
    assert taken == []


@pytest.mark.parametrize(
    "aside",
    [
        "deadLetters: {{files: {{path: '{path}'}}}}",
        "late: {{policy: side, sink: {{files: {{path: '{path}'}}}}}}",
        "deadLetters: {{sqlite: {{path: '{path}', table: t}}}}",
        "deadLetters: {{delta: {{path: '{path}'}}}}",
    ],
)
def test_what_is_set_aside_stays_in_the_folder(author_a: Caller, aside: str) -> None:
    for path in ("./{./.,y}./x", "../x", "/etc/x", "file:///etc/x"):
        answer = author_a.validate(ASIDE.format(name="aside", aside=aside.format(path=path)))
        assert {"PATH_NOT_ALLOWED", "URL_NOT_ALLOWED"} & set(codes(answer)), (path, answer.text)


OUT = "  sinks: {{out: {{from: s, sqlite: {{path: ./t.db, table: t}}}}}}\n"
TABLES = [
    "  sources: {{s: {{delta: {{path: '{path}'}}}}}}\n" + OUT,
    "  sources: {{s: {{memory: {{schema: {{line: string}}}}}}}}\n"
    "  sinks: {{out: {{from: s, delta: {{path: '{path}'}}}}}}\n",
]


@pytest.mark.parametrize("spec", TABLES, ids=["source", "sink"])
def test_a_delta_table_is_that_of_its_path_and_no_other(author_a: Caller, spec: str) -> None:
    """Its library makes a URL of the path, in which `%2e%2e` goes up."""
    ups = ("%2e%2e", ".%2e", "%2E.", "%252e%252e", "a%2f..%2f..", "..")
    for path in (f"{start}{up}/b/table" for up in ups for start in ("./", "./x/", "s3a://archive/in/", "")):
        answer = author_a.validate((HEAD + spec).format(name="table", path=path))
        assert "PATH_NOT_ALLOWED" in codes(answer), (path, answer.text)


def test_files_are_moved_to_no_other_place(author_a: Caller) -> None:
    for path in ("./{./.,y}./x", "../x", "/tmp", "file:///tmp"):
        answer = author_a.validate(READS.format(name="moves", path="./in", more=f", archiveTo: '{path}'"))
        assert {"PATH_NOT_ALLOWED", "URL_NOT_ALLOWED"} & set(codes(answer)), (path, answer.text)


@pytest.mark.parametrize(
    "url", ["sqlite:///%2e%2e/penstock.db", "sqlite:////etc/x", "SQLITE:///x.db", "sqlite://x.db", "sqlite:x.db",
            "sqlite:///../penstock.db", "sqlite:///file:x?mode=rwc", "postgresql://%2Fvar%2Frun/x",
            "postgresql://a,169.254.169.254/x", "postgresql://allowed@169.254.169.254/x",
            "postgresql://h/x?sslrootcert=/etc/shadow", "mysql://h/x?ssl_ca=/etc/shadow",
            "postgresql://h\\\\@169.254.169.254/x", "postgresql://１６９.254.169.254/x"],
)  # fmt: skip
def test_the_url_of_a_database_names_no_other_file_or_server(author_a: Caller, url: str) -> None:
    text = READS.replace('files: {{path: "{path}"{more}}}, format: {{text: {{}}}}', "sql_poll: {{SETTINGS}}")
    text = text.format(name="polls").replace("{SETTINGS}", f'{{url: "{url}", table: t, order: id}}')
    answer = author_a.validate(text)
    assert {"PATH_NOT_ALLOWED", "URL_NOT_ALLOWED", "SPEC_BAD_VALUE"} & set(codes(answer)), answer.text


def own_files(attacked: AttackedSite) -> Path:
    """Where relative paths of pipelines start that a token for `team=a` makes."""
    project = Projects(ServerConfig(), attacked.data).of({"team": "a"}, {"team": "a"})
    return Policies(attacked.data).of(project).folder


# --- what is planted after a path was checked -------------------------------------------------------------------


@pytest.fixture
def planted(attacked: AttackedSite, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder among those of pipelines with an ordinary file, and a link to the admin's token."""
    folder = own_files(attacked) / f"planted-{request.node.name[:20].replace('[', '-')}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1.txt").write_text("plain\n")
    (folder / "2.txt").symlink_to(attacked.data / "admin.token")
    yield folder
    for file in folder.iterdir():
        file.unlink()


@pytest.mark.spark
@pytest.mark.parametrize("pattern", ["", "/*", "/{1,2}.txt", "/[0-9].txt"])
def test_a_preview_does_not_follow_a_link_out_of_the_folder(
    author_a: Caller, attacked: AttackedSite, planted: Path, pattern: str
) -> None:
    answer = author_a.preview(READS.format(name="links", path=f"./{planted.name}{pattern}", more=""), "s")
    assert attacked.site.token not in answer.text
    assert codes(answer) == ["PATH_NOT_ALLOWED"], answer.text


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_run_does_not_read_a_link_that_was_planted_after_it_was_applied(
    author_a: Caller, attacked: AttackedSite, planted: Path
) -> None:
    link = planted / "2.txt"
    link.unlink()
    name = "planted"
    applied = author_a.apply(READS.format(name=name, path=f"./{planted.name}/*", more=""))
    assert applied.status_code == 200, applied.text
    try:
        store = own_files(attacked) / f"{name}.db"
        until(lambda: rows(store) == ["plain"], "the first file is stored", 150, every=0.3)
        link.symlink_to(attacked.data / "admin.token")
        until(lambda: failures(author_a, name), "the run refuses the link", 60, every=0.3)
        assert failures(author_a, name)[0] == "PATH_NOT_ALLOWED"
        assert rows(store) == ["plain"]
        assert attacked.site.token not in author_a.get(f"/pipelines/{name}/logs").text
    finally:
        author_a.delete(f"/pipelines/{name}")


def rows(store: Path) -> list[str]:
    import sqlite3

    if not store.exists():
        return []
    with closing(sqlite3.connect(store)) as database:
        try:
            return [value for (value,) in database.execute("SELECT value FROM t")]
        except sqlite3.OperationalError:
            return []


def failures(caller: Caller, name: str) -> list[str]:
    return [item["code"] for item in caller.get(f"/pipelines/{name}/exceptions").json()["items"]]
