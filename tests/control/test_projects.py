"""Which project a pipeline belongs to, and what each may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.control.auth.roles import Access, Grant, Role
from penstock.control.config import ServerConfig
from penstock.control.policy import Policy
from penstock.control.projects import Projects, accesses_of, may_change, scope_id, unguarded_secrets
from penstock.errors import PenstockError

DATA = Path("/srv/data")
TWO: dict[str, Any] = {
    "targets": {"local": {}, "news": {"master": "local[2]"}, "spare": {"failover": ["news", "local"]}},
    "secrets": {"env": ["SHARED_*"]},
    "paths": {"allowed": ["/srv/exchange"]},
    "addresses": {"denied": ["*.internal"]},
    "projects": {
        "news": {
            "labels": {"team": "news"},
            "targets": ["news"],
            "secrets": {"env": ["NEWS_*"]},
            "addresses": {"hosts": ["news.example.org"]},
            "groups": {"news-dev": "author", "news-oncall": "operator"},
        },
        "ads": {"labels": {"team": "ads"}, "groups": {"ads-dev": "operator"}},
    },
    "oidc": {"issuer": "https://x", "clientId": "c", "redirect": "https://y", "roles": {"boss": "viewer"}},
}


@pytest.fixture
def projects() -> Projects:
    return Projects(ServerConfig.model_validate(TWO), DATA)


def grant(scope: dict[str, str]) -> Grant:
    return Grant("ann", Role.AUTHOR, scope)


def test_a_pipeline_belongs_to_the_project_whose_labels_it_has(projects: Projects) -> None:
    assert projects.of({"team": "news", "env": "live"}).name == "news"
    assert projects.of({"team": "news"}, {"team": "news"}).kind == "configured"
    assert projects.of({"team": "sport"}).kind == "default"
    assert projects.of({"team": "sport"}, {"team": "sport"}).kind == "scope"


def test_each_project_has_rules_of_its_own(projects: Projects) -> None:
    news, ads = projects.named("news"), projects.named("ads")
    sport, default = projects.of({}, {"team": "sport"}), projects.default
    assert [str(Policy.of(each.config, DATA).folder) for each in (news, ads, default)] == [
        "/srv/data/projects/news/files", "/srv/data/projects/ads/files", "/srv/data/files",
    ]  # fmt: skip
    assert [each.config.secrets.env for each in (news, ads, sport, default)] == [("NEWS_*",), (), (), ("SHARED_*",)]
    assert [each.config.paths.allowed for each in (news, ads, sport, default)] == [(), (), (), ("/srv/exchange",)]
    assert news.config.addresses.hosts == ("news.example.org",)
    assert all(each.config.addresses.denied == ("*.internal",) for each in (news, ads, sport, default))


def test_a_target_that_a_project_names_is_not_for_those_that_name_none(projects: Projects) -> None:
    news, ads = projects.named("news"), projects.named("ads")
    assert (news.targets, ads.targets, projects.default.targets) == (
        ("news",), ("local", "spare"), ("local", "news", "spare"),
    )  # fmt: skip
    assert projects.of({}, {"team": "sport"}).targets == ("local", "spare")
    assert (news.target(None), ads.target(None)) == ("news", "local")
    assert ads.config.supervised["spare"].failover == ("local",)
    with pytest.raises(PenstockError) as raised:
        ads.target("news")
    assert raised.value.code == "TARGET_NOT_ALLOWED"
    assert "local, spare" in str(raised.value)


@pytest.mark.parametrize(
    ("scope", "labels", "known", "project"),
    [
        ({}, {"team": "news"}, None, "news"),
        ({}, {}, None, "default"),
        ({}, {"team": "sport"}, {"team": "sport"}, "team=sport"),
        ({"team": "news"}, {"team": "news"}, None, "news"),
        ({"team": "news", "env": "live"}, {"team": "news", "env": "live"}, None, "news"),
        # A draft without the labels, or with those of others, has the rules of its sender.
        ({"team": "news"}, {}, None, "news"),
        ({"team": "news"}, {"team": "ads"}, None, "news"),
        ({"team": "sport"}, {}, None, "team=sport"),
        ({"team": "sport"}, {"team": "news"}, None, "team=sport"),
        ({"team": "sport"}, {"team": "sport"}, None, "team=sport"),
        ({"org": "x"}, {"org": "x", "team": "sport"}, {"org": "x", "team": "sport"}, "org=x, team=sport"),
    ],
)
def test_a_file_is_judged_by_the_rules_of_its_project(
    projects: Projects, scope: dict[str, str], labels: dict[str, str], known: dict[str, str] | None, project: str
) -> None:
    found, role = projects.for_file(grant(scope), labels, known)
    assert (found.name, role) == (project, Role.AUTHOR)


@pytest.mark.parametrize(
    ("scope", "labels", "known"),
    [
        # One that is limited by other labels could write those of any project.
        ({"env": "live"}, {"env": "live", "team": "news"}, None),
        ({"env": "live"}, {"team": "news"}, None),
        # An unlimited token has made it, with the rights of the default project.
        ({"team": "sport"}, {"team": "sport"}, {}),
        # A wider token has made it, in a folder of more than this one's pipelines.
        ({"team": "sport", "env": "live"}, {"team": "sport", "env": "live"}, {"team": "sport"}),
        ({"team": "sport"}, {"team": "sport", "org": "x"}, {"org": "x"}),
    ],
)
def test_nobody_gets_the_rights_of_a_project_that_is_not_theirs(
    projects: Projects, scope: dict[str, str], labels: dict[str, str], known: dict[str, str] | None
) -> None:
    with pytest.raises(PenstockError) as raised:
        projects.for_file(grant(scope), labels, known)
    assert raised.value.code == "FORBIDDEN"


def test_a_person_has_a_role_in_each_project(projects: Projects) -> None:
    config = ServerConfig.model_validate(TWO)
    both = Grant.of("ann", accesses_of(config, ["news-dev", "ads-dev", "news-oncall"]))
    assert [(each.role, dict(each.scope)) for each in both.accesses] == [
        (Role.AUTHOR, {"team": "news"}), (Role.OPERATOR, {"team": "ads"}),
    ]  # fmt: skip
    assert (both.role_for({"team": "news"}), both.role_for({"team": "ads"}), both.role_for({})) == (
        Role.AUTHOR, Role.OPERATOR, None,
    )  # fmt: skip
    assert both.sees({"team": "ads"})
    authors = both.limited_to(Role.AUTHOR)
    assert not authors.sees({"team": "ads"})
    with pytest.raises(PenstockError):
        both.limited_to(Role.CODER)
    with pytest.raises(PenstockError):
        both.need_whole(to="read all")
    assert accesses_of(config, ["nobody"]) == ()
    assert Grant.of("bob", accesses_of(config, ["boss", "news-dev"])).whole
    with pytest.raises(PenstockError):
        Grant.of("bob", accesses_of(config, ["boss", "news-dev"])).limited_to(Role.AUTHOR).need_whole(to="x")
    with pytest.raises(PenstockError) as raised:
        projects.for_file(Grant.of("c", [Access(Role.AUTHOR, {"a": "1"}), Access(Role.AUTHOR, {"a": "2"})]), {}, None)
    assert raised.value.code == "FORBIDDEN"


_SCOPES = st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), min_size=1, max_size=3)


@given(_SCOPES, _SCOPES)
def test_folders_of_limits_are_sound_and_unlike_each_other(one: dict[str, str], other: dict[str, str]) -> None:
    name = scope_id(one)
    assert Path(name).name == name
    assert name.isascii()
    assert name == name.lower()
    assert len(name) < 100
    assert (name == scope_id(other)) is (one == other)
    assert name not in ("news", "files", "..")


@given(_SCOPES, _SCOPES)
def test_a_limit_opens_exactly_the_projects_of_limits_within_it(one: dict[str, str], other: dict[str, str]) -> None:
    project = Projects(ServerConfig(), DATA).of({}, other)
    assert may_change(Access(Role.AUTHOR, one), project) is (one.items() <= other.items())
    assert may_change(Access(Role.AUTHOR, {}), project)


@pytest.mark.parametrize(
    ("projects", "words"),
    [
        ({"a": {"labels": {"team": "x"}}, "b": {"labels": {"env": "y"}}}, "could have the labels of both"),
        ({"a": {"labels": {"team": "x"}}, "b": {"labels": {"team": "x", "env": "y"}}}, "could have the labels of both"),
        ({"a": {"labels": {}}}, "labels"),
        ({"a": {"labels": {"not a key": "x"}}}, "key of a label"),
        ({"a": {"labels": {"t": "x"}, "targets": ["nowhere"]}}, "'nowhere', which is not there"),
        ({"a": {"labels": {"t": "x"}, "notify": ["nobody"]}}, "'nobody', which is not there"),
        ({"a": {"labels": {"t": "x"}, "targets": ["local"]}, "b": {"labels": {"t": "y"}}}, "names no target"),
        ({"a": {"labels": {"t": "x"}, "quotas": {"memory": "1g"}}}, "driverMemory"),
        ({"a": {"labels": {"t": "x"}, "groups": {"g": "author"}}}, "need `oidc`"),
        (
            {
                "a": {"labels": {"t": "x"}, "paths": {"folder": "/srv/a"}},
                "b": {"labels": {"t": "y"}, "paths": {"allowed": ["/srv"]}},
            },
            "is in reach of 'b'",
        ),
    ],
)
def test_projects_that_are_not_apart_are_refused(projects: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as raised:
        ServerConfig.model_validate({"projects": projects})
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, []),
        ({"secrets": {"env": ["A"]}, "addresses": {"hosts": ["db.example.org"]}}, []),
        ({"secrets": {"env": ["A"]}}, ["the default project"]),
        (TWO, ["the default project"]),
        ({"projects": {"ads": {"labels": {"t": "x"}, "secrets": {"files": ["/run/secrets"]}}}}, ["project 'ads'"]),
    ],
)
def test_a_server_warns_of_secrets_that_may_be_sent_to_any_host(config: dict[str, Any], named: list[str]) -> None:
    found = unguarded_secrets(Projects(ServerConfig.model_validate(config), DATA))
    assert [warning.partition(" may ")[0].removeprefix("authors of ") for warning in found] == named
