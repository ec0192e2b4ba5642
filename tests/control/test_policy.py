"""What the files of pipelines may name on a server."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.control.files import PYTHON, SQL, yaml

from penstock.access.addresses import is_metadata
from penstock.components.base import Step, StepContext
from penstock.components.registry import all_components
from penstock.control import submitted
from penstock.control.auth.roles import Role
from penstock.control.config import AddressRules, PathRules, SecretRules, ServerConfig
from penstock.control.policy import Policy
from penstock.control.submitted import Checked, Submitted, check_all, check_file
from penstock.errors import PenstockError
from penstock.frontends.yaml import parse_yaml
from penstock.spec.fields import Config, Holds, field, held_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return Policy.of(ServerConfig(secrets=SecretRules(env=("PW",))), tmp_path)


def with_source(component: str) -> str:
    return f"""\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: p}}
spec:
  sources:
    s:
      {component}
  sinks:
    out: {{from: s, sqlite: {{path: out.db, table: t}}}}
"""


def with_step(component: str) -> str:
    return f"""\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: p}}
spec:
  sources:
    s: {{memory: {{schema: {{id: long}}}}}}
  steps:
    one: {{from: s, {component}}}
  sinks:
    out: {{from: one, sqlite: {{path: out.db, table: t}}}}
"""


def files_at(path: str) -> str:
    return with_source(f"{{files: {{path: '{path}'}}, format: {{text: {{}}}}}}")


def refused(policy: Policy, text: str, role: Role = Role.AUTHOR, path: str = "p.yaml") -> str:
    with pytest.raises(PenstockError) as raised:
        check_file(Submitted(path, text), policy, role)
    assert all(problem.location is not None and problem.location.file == path for problem in raised.value.problems)
    return raised.value.code


def taken(policy: Policy, text: str, role: Role = Role.AUTHOR) -> Checked:
    return check_file(Submitted("p.yaml", text), policy, role)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd", "../x", "in/../../x", "./in/..", "~/x", "~root/x", "/etc/*", "in/{a,../../etc}", "in/{..,a}/x",
        "in/\\\\.\\\\./x", "..", "/", "//etc/passwd", " /etc/passwd", "in//../../../etc/passwd", "/proc/self/environ",
    ],
)  # fmt: skip
def test_a_path_outside_the_allowed_folders_is_refused(policy: Policy, path: str) -> None:
    assert refused(policy, files_at(path)) == "PATH_NOT_ALLOWED"


@pytest.mark.parametrize(
    "path",
    [
        "file:///etc/passwd",
        "file:/etc/passwd",
        "FILE:/etc/passwd",
        "hdfs://x/y",
        "jar:file:/x",
        "ftp://x/y",
        "local:/x",
    ],
)
def test_a_scheme_that_is_not_allowed_is_refused(policy: Policy, path: str) -> None:
    assert refused(policy, files_at(path)) == "URL_NOT_ALLOWED"


@pytest.mark.parametrize("path", ["in", "./in", "in/*/day", "in/{a,b}/x.json", "a..b/c", "s3a://bucket/x"])
def test_paths_below_the_folder_and_buckets_are_taken(policy: Policy, path: str) -> None:
    assert taken(policy, files_at(path)).pipeline.name == "p"


def test_a_link_out_of_the_folder_is_seen_through(policy: Policy) -> None:
    policy.folder.mkdir()
    (policy.folder / "link").symlink_to("/etc")
    assert refused(policy, files_at("link/passwd")) == "PATH_NOT_ALLOWED"


def test_an_operator_can_allow_more(tmp_path: Path) -> None:
    wide = Policy.of(ServerConfig(paths=PathRules(allowed=("/srv/data",))), tmp_path)
    assert taken(wide, files_at("/srv/data/in")).pipeline.name == "p"
    assert refused(wide, files_at("/srv/database")) == "PATH_NOT_ALLOWED"
    assert refused(wide, files_at("/srv/data/../x")) == "PATH_NOT_ALLOWED"


@pytest.mark.parametrize(
    "place",
    [
        "deadLetters: {files: {path: /etc/x}}",
        "late: {policy: side, sink: {files: {path: /etc/x}}}",
    ],
)
def test_sinks_beside_the_graph_are_looked_at_too(policy: Policy, place: str) -> None:
    assert refused(policy, yaml("p", place)) == "PATH_NOT_ALLOWED"


@pytest.mark.parametrize(
    "source",
    [
        "{kafka: {bootstrap: 'k:9092', topic: t, security: {tls: true, ca: /etc/shadow}}, format: {text: {}}}",
        "{kafka: {bootstrap: 'k:9092', topic: t}, format: {avro: {schemaFile: /etc/shadow}}}",
        "{kafka: {bootstrap: 'k:9092', topic: t}, format: {protobuf: {descriptors: /etc/shadow, message: a.B}}}",
        "{files: {path: in, archiveTo: /etc}, format: {text: {}}}",
        "{memory: {schema: {id: long}}, eventTime: {column: id}, bootstrap: {delta: {path: /etc}}}",
    ],
)
def test_every_field_that_names_a_file_is_looked_at(policy: Policy, source: str) -> None:
    assert refused(policy, with_source(source)) == "PATH_NOT_ALLOWED"


def test_a_table_of_a_join_is_looked_at(policy: Policy) -> None:
    assert refused(policy, with_step("join: {table: {path: /etc/x.csv}, on: [id]}")) == "PATH_NOT_ALLOWED"


def _configs(cls: type[Config], found: list[type[Config]]) -> list[type[Config]]:
    """The class and those of the configurations inside it."""
    if cls not in found:
        found.append(cls)
        for info in cls.model_fields.values():
            for inner in _parts(info.annotation):
                if isinstance(inner, type) and issubclass(inner, Config):
                    _configs(inner, found)
    return found


def _parts(annotation: Any) -> typing.Iterator[Any]:
    yield annotation
    if typing.get_origin(annotation) is not typing.Literal:
        for inner in typing.get_args(annotation):
            yield from _parts(inner)


def _configs_of_components() -> list[type[Config]]:
    found: list[type[Config]] = []
    for component in all_components():
        _configs(component, found)
    return found


@pytest.mark.parametrize("config", _configs_of_components(), ids=lambda config: config.__name__)
def test_every_field_that_takes_a_text_says_what_it_holds(config: type[Config]) -> None:
    texts = [name for name, info in config.model_fields.items() if {str, Any}.intersection(_parts(info.annotation))]
    silent = [name for name in texts if held_by(config, name) is None]
    assert silent == [], "declare what these fields hold with `field(…, holds=Holds.…)`"


def test_fields_with_paths_and_addresses_are_those_whose_words_say_so() -> None:
    paths = ("relative to the pipeline", "PEM file", "Folder into", "Folder to", "descriptor file", "a file with")
    for config in _configs_of_components():
        for name, info in config.model_fields.items():
            doc = (info.description or "").lower()
            if any(words.lower() in doc for words in paths):
                assert held_by(config, name) in (Holds.PATH, Holds.ADDRESS), f"{config.__name__}.{name}"
            if any(words in doc for words in ("addresses of brokers", "where the database is", "address such as")):
                assert held_by(config, name) is Holds.ADDRESS, f"{config.__name__}.{name}"


@pytest.mark.parametrize(
    ("file", "code"), [("/etc/x.db", "PATH_NOT_ALLOWED"), ("../x.db", "PATH_NOT_ALLOWED"), ("x.db", "")]
)
def test_the_file_of_a_database_is_a_path(policy: Policy, file: str, code: str) -> None:
    text = with_source(f"{{sql_poll: {{url: 'sqlite:///{file}', table: t, order: id}}}}")
    assert (refused(policy, text) if code else "") == code


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254", "metadata.google.internal", "[fe80::1]", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
        "169.254.43518", "[::ffff:169.254.169.254]", "100.100.100.200", "METADATA.google.internal.", "[fd00:ec2::254]",
        "[fd00:ec2::23]", "[fd20:ce::254]", "metadata.goog", "[64:ff9b:1::a9fe:a9fe]", "[::ffff:0:a9fe:a9fe]",
        "metadata.azure.internal", "[64:ff9b::169.254.169.254]", "[2002:a9fe:a9fe::1]",
    ],
)  # fmt: skip
def test_metadata_addresses_are_refused_however_they_are_written(policy: Policy, host: str) -> None:
    source = f"{{files: {{path: s3a://b/x, s3: {{endpoint: 'http://{host}'}}}}, format: {{text: {{}}}}}}"
    assert refused(policy, with_source(source)) == "URL_NOT_ALLOWED"
    database = with_source(f"{{sql_poll: {{url: 'postgresql://u:${{secret:env/PW}}@{host}/db', table: t, order: id}}}}")
    assert refused(policy, database) == "URL_NOT_ALLOWED"


def test_a_broker_at_a_metadata_address_is_refused(policy: Policy) -> None:
    source = "{kafka: {bootstrap: 'good:9092,169.254.169.254:80', topic: t}, format: {text: {}}}"
    assert refused(policy, with_source(source)) == "URL_NOT_ALLOWED"


def test_ordinary_hosts_are_no_metadata() -> None:
    assert not any(is_metadata(host) for host in ("localhost", "10.0.0.1", "example.org", "::1", "1metadata", ""))


def test_hosts_can_be_limited(tmp_path: Path) -> None:
    rules = AddressRules(hosts=("*.example.org", "db"), denied=("bad.example.org",))
    limited = Policy.of(ServerConfig(addresses=rules, secrets=SecretRules(env=("PW",))), tmp_path)
    for host, fits in (("db", True), ("a.example.org", True), ("bad.example.org", False), ("example.com", False)):
        url = f"postgresql://u:${{secret:env/PW}}@{host}/x"
        text = with_source(f"{{sql_poll: {{url: '{url}', table: t, order: id}}}}")
        if fits:
            taken(limited, text)
        else:
            assert refused(limited, text) == "URL_NOT_ALLOWED"


@pytest.mark.parametrize("reference", ["env/PENSTOCK_TOKEN", "file//etc/shadow", "file/x/../../etc/shadow"])
def test_secrets_of_the_server_are_not_given_away(policy: Policy, reference: str) -> None:
    source = f"{{sql_poll: {{url: '${{secret:{reference}}}', table: t, order: id}}}}"
    assert refused(policy, with_source(source)) == "SECRET_NOT_ALLOWED"


def test_secrets_can_be_limited_by_name_and_folder(tmp_path: Path) -> None:
    rules = SecretRules(env=("NEWS_*",), files=("/run/secrets",))
    limited = Policy.of(ServerConfig(secrets=rules), tmp_path)
    for reference, fits in (("env/NEWS_DB", True), ("env/ADS_DB", False), ("file//run/secrets/db", True)):
        text = with_source(f"{{sql_poll: {{url: '${{secret:{reference}}}', table: t, order: id}}}}")
        if fits:
            taken(limited, text)
        else:
            assert refused(limited, text) == "SECRET_NOT_ALLOWED"


def test_code_needs_the_role_of_a_coder(policy: Policy) -> None:
    step = "python: {function: 'os:system'}"
    assert refused(policy, with_step(step)) == "CODE_NOT_ALLOWED"
    assert taken(policy, with_step(step), Role.CODER).pipeline.name == "p"


class Foreign(Step):
    """A step of another package that runs code."""

    name: ClassVar[str] = "foreign"
    example: ClassVar[str] = ""
    how: dict[str, str] = field({}, holds=Holds.CODE, doc="Functions by column.")

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        raise NotImplementedError


def test_code_of_any_component_needs_the_role_of_a_coder(policy: Policy) -> None:
    file = parse_yaml(with_step('filter: "true"'), Path("p.yaml"))
    (step,) = file.pipeline.steps

    def problems(role: Role, **more: Any) -> list[str]:
        changed = step.model_copy(update={"component": Foreign(**more)})
        pipeline = file.pipeline.model_copy(update={"steps": (changed,)})
        return [problem.code for problem in policy.problems(replace(file, pipeline=pipeline), role)]

    assert problems(Role.AUTHOR, how={"a": "os:system"}) == ["CODE_NOT_ALLOWED"]
    assert problems(Role.CODER, how={"a": "os:system"}) == []
    assert problems(Role.AUTHOR) == [], "it names none"


def test_sql_is_left_to_the_engine(policy: Policy) -> None:
    """It knows what Spark understands; a text with many comments must not be searched for names."""
    for query in (
        "SELECT reflect('a', 'b') FROM s",
        "SELECT reflect" + "/**/" * 10_000 + " FROM s",
        "SELECT concat('/etc/passwd', 'file:///x') AS x FROM s",
    ):
        assert taken(policy, with_step(f'sql: "{query}"')).pipeline.name == "p"


def test_a_python_file_needs_a_coder_and_runs_elsewhere(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary")
    assert refused(policy, PYTHON, path="p.py") == "CODE_NOT_ALLOWED"
    code = (
        PYTHON + "import os, sys\nprint('noise')\nsys.modules['canary'] = os\nassert 'CANARY_TOKEN' not in os.environ\n"
    )
    checked = check_file(Submitted("p.py", code), policy, Role.CODER)
    assert (checked.kind, checked.pipeline.name) == ("py", "coded")
    import sys

    assert "canary" not in sys.modules


def test_what_is_wrong_in_a_python_file_is_told_at_its_line(policy: Policy) -> None:
    with pytest.raises(PenstockError) as raised:
        check_file(Submitted("folder/p.py", "import penstock as ps\n1 / 0\n"), policy, Role.CODER)
    (problem,) = raised.value.problems
    assert (problem.code, str(problem.location)) == ("PYTHON_FILE_FAILED", "folder/p.py:2:1")
    assert "/tmp" not in str(problem)


def test_a_python_file_cannot_lie_about_its_paths(policy: Policy) -> None:
    assert refused(policy, PYTHON.replace("./out.db", "/etc/out.db"), Role.CODER, "p.py") == "PATH_NOT_ALLOWED"


@pytest.mark.parametrize("code", ["import os\nos._exit(0)\n", "import os\nos.kill(os.getpid(), 9)\n"])
def test_a_python_file_that_ends_its_process_is_told(policy: Policy, code: str) -> None:
    assert refused(policy, code, Role.CODER, "p.py") == "EXAMINATION_FAILED"


def test_a_python_file_that_never_ends_is_ended(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitted, "_PATIENCE", 0.5)
    assert refused(policy, "while True: pass\n", Role.CODER, "p.py") == "EXAMINATION_FAILED"


def test_sql_files_are_read_too(policy: Policy) -> None:
    assert check_file(Submitted("p.sql", SQL), policy, Role.AUTHOR).pipeline.name == "in_sql"
    assert refused(policy, SQL.replace("./out.db", "/out.db"), path="p.sql") == "PATH_NOT_ALLOWED"


def test_mistakes_are_those_of_the_command_with_their_place(policy: Policy) -> None:
    with pytest.raises(PenstockError) as raised:
        check_all(
            [
                Submitted("a.yaml", yaml("a").replace("views: {gen", "views: {gne")),
                Submitted("b.txt", ""),
                Submitted("c.yaml", yaml("c")),
                Submitted("d.yaml", yaml("c")),
            ],
            policy,
            Role.ADMIN,
        )
    found = [(problem.code, problem.location.file if problem.location else "") for problem in raised.value.problems]
    assert ("COMPONENT_UNKNOWN", "a.yaml") in found
    assert ("FILE_KIND_UNKNOWN", "b.txt") in found
    assert ("SPEC_DUPLICATE_NAME", "d.yaml") in found
