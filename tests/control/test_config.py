"""The configuration of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig, read_server_config
from penstock.errors import PenstockError
from penstock.spec.units import Size


def read(folder: Path, text: str) -> ServerConfig:
    path = folder / "server.yaml"
    path.write_text(text)
    return read_server_config(path)


def refused(folder: Path, text: str) -> tuple[str, int]:
    with pytest.raises(PenstockError) as raised:
        read(folder, text)
    (problem,) = raised.value.problems
    assert problem.location is not None
    return problem.code, problem.location.line


def test_without_a_file_pipelines_run_on_this_machine() -> None:
    config = read_server_config(None)
    assert config.default_target == "local"
    assert config.target(None).master == "local[*]"
    assert config.oidc is None


def test_an_empty_file_is_like_none(tmp_path: Path) -> None:
    assert read(tmp_path, "# nothing yet\n") == ServerConfig()


def test_the_first_target_is_the_default(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """\
targets:
  near: {master: "spark://10.0.0.1:7077", conf: {spark.executor.memory: 2g}, role: author}
  far: {master: yarn, driverMemory: 4g, packages: ["org.example:thing:1.0"]}
limits: {body: 1MB}
""",
    )
    assert (config.default_target, [*config.targets]) == ("near", ["near", "far"])
    assert config.target("near").role is Role.AUTHOR
    assert config.limits.body == Size(1_000_000)
    assert config.supervised["near"].failover == ("far",)
    assert config.supervised["far"].driver_memory == "4g"


def test_a_target_that_is_not_there_is_told_with_a_suggestion() -> None:
    with pytest.raises(PenstockError) as raised:
        ServerConfig().target("locl")
    assert raised.value.code == "TARGET_UNKNOWN"
    assert "'local'" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("limits:\n  bdy: 1MB\n", 2),
        ("targets:\n  Near: {master: yarn}\n", 2),
        ("targets:\n  near:\n    master: 'spark://x --conf y'\n", 3),
        ("targets:\n  near:\n    conf: {'x y': z}\n", 3),
        ("targets:\n  near:\n    packages: ['a;b']\n", 3),
        ("targets: {}\n", 1),
        ("notify:\n  Team: {webhook: {url: http://x}}\n", 2),
        ("notify:\n  team:\n    slack: {url: https://hooks.example.com/T0/B0/XX}\n", 3),
        ("notify:\n  a: {webhook: {url: http://x}}\n  b:\n    severities: [page]\n", 4),
        ("targets: {a: {failover: [b]}}\n", 1),
        ("oidc:\n  issuer: ftp://x\n  clientId: c\n  redirect: https://x/y\n", 2),
        ("oidc:\n  issuer: https://x\n  clientId: c\n  clientSecret: plain\n  redirect: https://x/y\n", 4),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    assert refused(tmp_path, text)[1] == line


def test_the_secrets_of_the_server_are_known_by_name(tmp_path: Path) -> None:
    text = """\
notify:
  team: {slack: {url: "${secret:env/SLACK_URL}"}}
  pager: {webhook: {url: https://x, headers: {Authorization: "Bearer ${secret:env/PAGER} ${secret:file/run/key}"}}}
"""
    assert read(tmp_path, text).own_variables == {"SLACK_URL", "PAGER"}
    assert ServerConfig().own_variables == frozenset()


def test_history_is_thinned_in_order(tmp_path: Path) -> None:
    with pytest.raises(PenstockError):
        read(tmp_path, "history: {batches: 9 days, minutes: 1 day}\n")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as raised:
        read_server_config(tmp_path / "none.yaml")
    assert raised.value.code == "FILE_NOT_FOUND"
