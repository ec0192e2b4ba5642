"""What of the server's environment reaches a process of a pipeline: nothing that is not on the list."""

from __future__ import annotations

import random
import string

import pytest

from penstock.control.launch.environment import environment

WORDS = (
    "DATABASE", "URL", "DSN", "MAILPASS", "PASSWORD", "PASSWD", "TOKEN", "SECRET", "KEY", "CREDENTIALS", "AWS", "AUTH",
    "PENSTOCK", "SERVE", "STORE", "SMTP", "PG", "MYSQL", "REDIS", "API", "PRIVATE", "CERT", "SESSION", "COOKIE", "SSH",
)  # fmt: skip


def generated(seed: int) -> str:
    chosen = random.Random(seed)
    parts = [chosen.choice(WORDS) for _ in range(chosen.randint(1, 4))]
    if chosen.random() < 0.3:
        parts.append("".join(chosen.choices(string.ascii_letters + string.digits, k=5)))
    text = "_".join(parts)
    return text if chosen.random() < 0.7 else text.lower()


@pytest.mark.parametrize("seed", range(300))
def test_a_variable_that_nobody_named_stays_in_the_server(seed: int) -> None:
    name = generated(seed)
    given = {"PATH": "/bin", name: "canary"}
    assert environment(given) == {"PATH": "/bin"}
    # One that a pipeline refers to comes, except those of the server itself.
    own = name.startswith(("PENSTOCK_STORE", "PENSTOCK_SERVE", "PENSTOCK_TOKEN", "PENSTOCK_URL"))
    assert (name in environment(given, secrets={name})) is not own
    assert name not in environment(given, secrets={name}, hidden={name})
    assert name not in environment(given, secrets={f"{name}_"}, further=[f"{name}_*"])


def test_what_programs_need_everywhere_is_passed_on() -> None:
    given = {"PATH": "/bin", "LANG": "C", "LC_ALL": "C.UTF-8", "TZ": "UTC", "JAVA_HOME": "/java", "SSL_CERT_FILE": "/c"}
    assert environment(given) == given


def test_an_operator_names_more_and_never_what_is_the_servers() -> None:
    given = {"AWS_PROFILE": "p", "AWS_REGION": "r", "SMTP": "s", "PENSTOCK_TOKEN_FILE": "t", "PENSTOCK_STORE": "s"}
    assert environment(given, further=["AWS_*"]) == {"AWS_PROFILE": "p", "AWS_REGION": "r"}
    assert environment(given, further=["*"]) == {"AWS_PROFILE": "p", "AWS_REGION": "r", "SMTP": "s"}
    assert environment(given, further=["*"], hidden={"SMTP"}) == {"AWS_PROFILE": "p", "AWS_REGION": "r"}


def test_the_servers_home_and_temporary_folder_are_not_passed_on() -> None:
    assert environment({"HOME": "/root", "TMPDIR": "/tmp/of-the-server", "PWD": "/srv", "USER": "root"}) == {}


def test_relative_parts_of_the_python_path_are_made_absolute(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert environment({"PYTHONPATH": "lib::/abs"}) == {"PYTHONPATH": f"{tmp_path}/lib:/abs"}
