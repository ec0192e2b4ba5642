"""Which paths may be opened: below the roots once links are followed, and never among the server's own files."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from penstock.access.addresses import AddressLimits
from penstock.access.limits import Access, check_address, check_files, checked_path, limited
from penstock.access.paths import PathLimits, _resolved, leads_out
from penstock.access.secrets import SecretLimits
from penstock.errors import PenstockError

ENCODED = (
    "%2e%2e",
    "%2E.",
    ".%2e",
    "%252e%252e",
    "%25252e.",
    "a%2f..",
    "..%2fa",
    "a%2F%2e%2e",
    "%5c..%5c",
    "{%2e%2e,y}",
)
UPWARDS = ("..", "{./.,y}.", "{.,y/}.", "{..,y}", "{y,{..,z}}", "a/..", "{a,b}/..", ".{./x,y}", "*/..", "{a/..,b}")
BEFORE = ("", "./", "a/", "a/b/", "{a,b}/", "*/", "a//", "./././")
AFTER = ("", "/x", "/*", "/{x,y}", "//x")


def access(*roots: object, data: Path | None = None, files: Path | None = None) -> Access:
    closed, opened = (None if data is None else str(data)), (() if files is None else (str(files),))
    limits = PathLimits(tuple(map(str, roots)), closed, opened)
    return Access(limits, AddressLimits(("s3a", "postgresql")), SecretLimits())


def code_of(limits: Access, folder: Path, path: str) -> str:
    with limited(limits):
        try:
            checked_path(folder, path)
        except PenstockError as error:
            return error.code
    return ""


@pytest.mark.parametrize("absolute", [False, True])
def test_no_way_of_going_up_is_taken(tmp_path: Path, absolute: bool) -> None:
    start = f"{tmp_path}/" if absolute else ""
    spelt = [f"{start}{before}{up}{after}" for before, up, after in itertools.product(BEFORE, UPWARDS, AFTER)]
    taken = [path for path in spelt if code_of(access(tmp_path), tmp_path, path) == ""]
    assert len(spelt) == 400
    assert taken == []


@pytest.mark.parametrize("start", ["", "s3a://bucket/in/"])
def test_no_encoded_way_of_going_up_is_taken(tmp_path: Path, start: str) -> None:
    roots = [tmp_path, "s3a://bucket/in"]
    spelt = [f"{start}{before}{up}{after}" for before, up, after in itertools.product(BEFORE, ENCODED, AFTER)]
    taken = [path for path in spelt if code_of(access(*roots), tmp_path, path) == ""]
    assert len(spelt) == 400
    assert taken == []
    for path in ("day=2024%2F01", "a%20b", "100%", "%zz", "a%2eb"):
        assert code_of(access(*roots), tmp_path, start + path) == ""


@pytest.mark.parametrize(
    "path", ["in", "./in", "in/*/day", "in/{a,b}/x.json", "a..b/c", "in/{a/x,b}", "2024:01/x", "é"]
)
def test_ordinary_paths_and_patterns_are_taken(tmp_path: Path, path: str) -> None:
    assert code_of(access(tmp_path), tmp_path, path) == ""


@pytest.mark.parametrize(
    "path", ["", " ", " in", "in ", "in\n", "in\x00", "in\t/x", "a\\..\\x", "~", "~root", "//etc", "/etc", "\ud800",
             "x" * 5000, "{a/,b/}" * 12],
)  # fmt: skip
def test_what_might_be_read_in_different_ways_is_refused(tmp_path: Path, path: str) -> None:
    assert code_of(access(tmp_path), tmp_path, path) == "PATH_NOT_ALLOWED"


def test_a_name_with_wildcards_is_also_judged_as_it_is_written(tmp_path: Path) -> None:
    """What takes no patterns, such as a sink, opens the name itself."""
    (tmp_path / "in[1]").symlink_to("/etc")
    assert code_of(access(tmp_path), tmp_path, "in[1]/passwd") == "PATH_NOT_ALLOWED"


def test_files_of_the_server_are_closed_whatever_is_allowed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "files").mkdir(parents=True)
    for roots in (("/",), (tmp_path,), (data,), (data / "pipelines",)):
        limits = access(*roots, data=data, files=data / "files")
        for path in (data / "admin.token", data / "penstock.db", data, data / "pipelines" / "x"):
            assert code_of(limits, tmp_path, str(path)) == "PATH_NOT_ALLOWED", (roots, path)
        if roots[0] in ("/", tmp_path, data):
            assert code_of(limits, tmp_path, str(data / "files" / "x")) == ""
    own = access("/", data=data, files=data / "files").with_own(data / "pipelines" / "mine")
    assert code_of(own, tmp_path, str(data / "pipelines" / "mine" / "dead")) == ""
    assert code_of(own, tmp_path, str(data / "pipelines" / "yours" / "dead")) == "PATH_NOT_ALLOWED"


def test_a_file_that_was_found_behind_a_link_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret").touch()
    (inside / "plain").touch()
    (inside / "near").symlink_to(inside / "plain")
    (inside / "far").symlink_to(tmp_path / "secret")
    with limited(access(inside)):
        check_files([str(inside / "plain"), str(inside / "near")])
        for name in ("far", "../secret"):
            with pytest.raises(PenstockError) as raised:
                check_files([f"{inside}/{name}"])
            assert raised.value.code == "PATH_NOT_ALLOWED"
    check_files([str(inside / "far")])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3a://lake/a/x", ""), ("s3a://lake/a/*/y", ""), ("s3a://lake/a", ""), ("s3a://lake/ab/x", "PATH_NOT_ALLOWED"),
        ("s3a://lake/b", "PATH_NOT_ALLOWED"), ("s3a://lake/a/../b", "PATH_NOT_ALLOWED"),
        ("s3a://lake/*", "PATH_NOT_ALLOWED"),
        ("s3a://lake/{a/x,a/y}", "PATH_NOT_ALLOWED"), ("s3a://lake/a/{x/1,y}", ""),
        ("s3a://lake/{a,b}/x", "PATH_NOT_ALLOWED"), ("s3a://lake/a/{./.,y}./b", "PATH_NOT_ALLOWED"),
        ("s3a://other/a", "PATH_NOT_ALLOWED"), ("s3a://k:s@lake/a", "PATH_NOT_ALLOWED"),
        ("s3a:///a", "PATH_NOT_ALLOWED"),
        ("s3://lake/a", "URL_NOT_ALLOWED"), ("S3A://lake/a", "URL_NOT_ALLOWED"), ("s3a:/lake/a", "URL_NOT_ALLOWED"),
        ("file:///etc/x", "URL_NOT_ALLOWED"), ("hdfs://h/x", "URL_NOT_ALLOWED"), ("in/x://y", "PATH_NOT_ALLOWED"),
    ],
)  # fmt: skip
def test_places_in_buckets_lie_below_those_that_are_allowed(tmp_path: Path, path: str, expected: str) -> None:
    assert code_of(access(tmp_path, "s3a://lake/a"), tmp_path, path) == expected


def test_a_name_in_a_manifest_leads_nowhere_else() -> None:
    assert not any(map(leads_out, ("part-1.parquet", "a=1/b=2/part.json", "a..b/c")))
    assert all(map(leads_out, ("../x", "a/../x", "/etc/x", "file:///x", "{./.,y}/../x", "~/x", "a\\x")))


def test_a_name_that_stands_for_a_metadata_address_is_refused_when_it_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"good.example": "192.0.2.1", "bad.example": "169.254.169.254"}
    monkeypatch.setattr(
        "penstock.access.addresses.socket.getaddrinfo", lambda host, *_, **__: [(0, 0, 0, "", (found[host], 0))]
    )
    with limited(access(tmp_path)):
        check_address("postgresql://u@good.example/x")
        check_address("good.example:9092")
        for address in ("postgresql://u@bad.example/x", "good.example:9092,bad.example:9092"):
            with pytest.raises(PenstockError) as raised:
                check_address(address)
            assert raised.value.code == "URL_NOT_ALLOWED"


def test_a_process_without_limits_opens_what_its_user_may(tmp_path: Path) -> None:
    assert checked_path(tmp_path, "../x") == os.path.normpath(tmp_path / ".." / "x")


def test_links_are_resolved_as_the_system_does_it_whatever_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    for name, target in {"up": "..", "gone": "a/nowhere/x", "in": "a/b", "loop": "loop", "file": "a/file"}.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "a" / "b" / "back").symlink_to(tmp_path / "gone")
    names = ("a", "b", "up", "gone", "in", "loop", "file", "back", "x", "nowhere")
    for parts in (*itertools.product(names, repeat=3), *itertools.product(names, repeat=2), ()):
        path = "/".join([str(tmp_path), *parts])
        assert _resolved(path) == os.path.realpath(path)
    assert _resolved("/") == "/"
