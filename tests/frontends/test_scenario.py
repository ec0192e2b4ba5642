"""Capacity scenarios: what is read from files and options, and where mistakes are said to be."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from penstock.capacity.load import Profile
from penstock.capacity.units import NetworkSpeed
from penstock.errors import PenstockError
from penstock.frontends.scenario import OPTIONS, Option, ScenarioFile, read_scenario

GOOD = """\
source: {rate: 1000/s, recordSize: 1 KB}
steps:
  hourly:
    keys: 1000
    state: 40 bytes
    emit: 40 bytes
    windows: {size: 1 hour}
checkpoints: {every: 1 minute, mode: full}
machines: {count: 2, network: 10 Gbit/s}
disks: {attached: local}
"""


def read(folder: Path, text: str, *options: Option) -> ScenarioFile:
    path = folder / "load.yaml"
    path.write_text(text, "utf-8")
    return read_scenario(path, options)


def mistakes(folder: Path, text: str, *options: Option) -> list[tuple[str, str, str]]:
    """Code, place and message of each mistake."""
    with pytest.raises(PenstockError) as caught:
        read(folder, text, *options)
    return [
        (
            problem.code,
            "" if problem.location is None else f"{problem.location.line}:{problem.location.column}",
            problem.message,
        )
        for problem in caught.value.problems
    ]


def option(flag: str, value: object, step: str | None = None) -> Option:
    return Option(next(path for path, name in OPTIONS.items() if name == flag), value, step)


def test_a_scenario_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)

    assert found.scenario.steps["hourly"].keys.value == 1000
    assert found.scenario.machines.network == NetworkSpeed(10**10)
    assert found.profile == Profile((0.0,), (1000.0,))


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "said"),
    [
        ("count: 2", "count: 0", "SPEC_BAD_VALUE", "9:19", "`machines.count`: must be at least 1"),
        ("count: 2", "count: -3", "SPEC_BAD_VALUE", "9:19", "`machines.count`: must be at least 1"),
        ("count: 2", "count: two", "SPEC_WRONG_TYPE", "9:19", "must be a whole number, not the text 'two'"),
        ("10 Gbit/s", "10 GB", "SPEC_BAD_VALUE", "9:31", "write '10 Gbit/s', or '80 Gbit/s' if bytes are meant"),
        ("10 Gbit/s", "10 Gb", "SPEC_BAD_VALUE", "9:31", "an amount of bits, not a speed: write '10 Gbit/s'"),
        ("10 Gbit/s", "0 Gbit/s", "SPEC_BAD_VALUE", "9:31", "`machines.network`: must be more than 0"),
        ("1 KB", "1 Kb", "SPEC_BAD_VALUE", "1:36", "`source.recordSize`: '1 Kb' is in bits"),
        ("1 KB", "0 KB", "SPEC_BAD_VALUE", "1:36", "`source.recordSize`: must be more than 0"),
        ("1000/s", "-1000/s", "SPEC_BAD_VALUE", "1:16", "`source.rate`: '-1000/s' is negative"),
        ("1000/s", "1000", "SPEC_BAD_VALUE", "1:16", "does not say in which time; write for example '1000/s'"),
        ("1000/s", "0/s", "SPEC_BAD_VALUE", "1:16", "`source.rate`: must be more than 0"),
        ("keys: 1000", "keys: 0", "SPEC_BAD_VALUE", "4:11", "`keys` of step 'hourly': must be more than 0"),
        ("keys: 1000", "keys: -5", "SPEC_BAD_VALUE", "4:11", "`keys` of step 'hourly': '-5' is negative"),
        ("    keys: 1000\n", "", "SPEC_MISSING_KEY", "3:3", "'keys' is missing in step 'hourly'"),
        ("keys: 1000", "kesy: 1000", "SPEC_MISSING_KEY", "3:3", "'keys' is missing in step 'hourly'"),
        ("size: 1 hour", "size: 1 hour, slide: 2 hours", "SPEC_BAD_VALUE", "7:36", "must not be longer than `size`"),
        ("size: 1 hour", "size: 0 s", "SPEC_BAD_VALUE", "7:21", "`windows.size` of step 'hourly': must be more than 0"),
        ("size: 1 hour", "size: 1h, slide: 0 s", "SPEC_BAD_VALUE", "7:32", "must be more than 0"),
        ("every: 1 minute", "every: 0 s", "SPEC_BAD_VALUE", "8:22", "`checkpoints.every`: must be more than 0"),
        ("every: 1 minute", "every: soon", "SPEC_BAD_VALUE", "8:22", "'soon' is not a duration"),
        ("mode: full", "mode: ful", "SPEC_BAD_VALUE", "8:38", "the text 'ful' is not one of 'full' or 'changes'"),
        (", mode: full", "", "SPEC_MISSING_KEY", "8:1", "'mode' is missing in `checkpoints`"),
        ("{rate: 1000/s, ", "{", "SPEC_MISSING_KEY", "1:1", "'rate' is missing in `source`"),
        ("rate: 1000/s", "rate: 1/s, profile: a.csv", "SPEC_BAD_VALUE", "1:30", "is given beside `rate`"),
        ("checkpoints: {every: 1 minute, mode: full}\n", "", "SPEC_MISSING_KEY", "1:1", "'checkpoints' is missing in"),
        ("disks: {attached: local}\n", "", "SPEC_MISSING_KEY", "1:1", "'disks' is missing in the scenario"),
        ("machines: {count: 2, network: 10 Gbit/s}\n", "", "SPEC_MISSING_KEY", "1:1", "'machines' is missing in the"),
        ("count: 2", "rowsPerCore: 1/s", "SPEC_MISSING_KEY", "9:1", "'cores' is missing in `machines`"),
        (
            "count: 2",
            "cores: 4, rowsPerCore: 1/s",
            "SPEC_MISSING_KEY",
            "9:1",
            "'emittedRowsPerCore' is missing in `machines`",
        ),
        ("    keys", "    reads: daily\n    keys", "SPEC_BAD_VALUE", "4:12", "there is no step 'daily'"),
        ("    keys", "    reads: hourly\n    keys", "SPEC_BAD_VALUE", "4:12", "'hourly' gets rows of 'hourly' itself"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_at_its_place(old: str, new: str, code: str, place: str, said: str, tmp_path: Path) -> None:
    assert old in GOOD
    found = mistakes(tmp_path, GOOD.replace(old, new))

    assert [each[:2] for each in found if said in each[2]] == [(code, place)]
    assert len(found) == (2 if "kesy" in new else 1)


@pytest.mark.parametrize(
    ("more", "place", "said"),
    [
        ("executor: {rocksdb: 1 GB}", "11:1", "'heap' is missing in `executor`"),
        ("executor: {heap: 1 GB, container: 2 GB}", "11:35", "`executor.container`: is computed from `heap`"),
        ("executor: {container: 100 MB}", "11:23", "`executor.container`: leaves nothing for the heap"),
        ("executor: {heap: 1 GB, cutoff: 25%}", "11:32", "`executor.cutoff`: is a share of `container`"),
        ("executor: {container: 1 GB, cutoff: 100%}", "11:37", "`executor.cutoff`: leaves nothing for the heap"),
        ("goals: {margin: 100%}", "11:17", "`goals.margin`: leaves nothing to work with"),
        ("goals: {lag: 0 s}", "11:14", "`goals.lag`: must be more than 0"),
        ("goals: {catchUp: 1 h}", "11:1", "'outage' is missing in the scenario"),
        ("outage: 0 s", "11:9", "`outage`: must be more than 0"),
        ("roundTo: 0 MB/s", "11:10", "`roundTo`: must be more than 0"),
        ("roundTo: 1 MB", "11:10", "'1 MB' is not a disk's speed"),
        ("margin: 20%", "11:1", "unknown key 'margin' in the scenario"),
    ],
)
def test_a_mistake_in_further_parts_is_named_at_its_place(more: str, place: str, said: str, tmp_path: Path) -> None:
    found = mistakes(tmp_path, GOOD + more + "\n")

    assert [each[1] for each in found if said in each[2]] == [place]
    assert len(found) == 1


def test_an_unknown_key_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        read(tmp_path, GOOD.replace("recordSize", "recordsize"))

    unknown, missing = sorted(caught.value.problems, key=lambda problem: problem.code, reverse=True)
    assert (unknown.code, unknown.hint) == ("SPEC_UNKNOWN_KEY", "Did you mean 'recordSize'?")
    assert (missing.code, missing.params["key"]) == ("SPEC_MISSING_KEY", "recordSize")
    assert missing.hint.endswith("Or give `--record-size`.")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "source: {recordSize: 1 Kb}\nsteps: {a: {keys: 0}}\nmachines: {}\n")

    assert {(place, message) for _, place, message in found} == {
        ("1:1", "'checkpoints' is missing in the scenario"),
        ("1:1", "'disks' is missing in the scenario"),
        ("1:1", "'rate' is missing in `source`"),
        (
            "1:22",
            "`source.recordSize`: '1 Kb' is in bits, and a size is in bytes: write a capital B, such as '2 KB'",
        ),
        ("2:9", "'state' is missing in step 'a'"),
        ("2:9", "'emit' is missing in step 'a'"),
        ("2:19", "`keys` of step 'a': must be more than 0"),
        ("3:1", "'network' is missing in `machines`"),
    }


def test_an_empty_scenario_lacks_everything(tmp_path: Path) -> None:
    for text in ("", "# nothing yet\n"):
        assert {code for code, _, _ in mistakes(tmp_path, text)} == {"SPEC_MISSING_KEY"}


@pytest.mark.parametrize(("name", "text"), [("p.yaml", "kind: Pipeline\n"), ("p.py", "x = 1\n"), ("p.sql", "/* */")])
def test_a_pipeline_is_no_scenario(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(PenstockError) as caught:
        read_scenario(tmp_path / name)

    assert caught.value.code == "USAGE"
    assert "penstock capacity --pipeline" in caught.value.problems[0].hint


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(PenstockError) as caught:
        read_scenario(Path("nowhere.yaml"))
    assert caught.value.code == "FILE_NOT_FOUND"


# --- options -------------------------------------------------------------------------------------------------------


def test_options_take_the_place_of_what_the_file_says(tmp_path: Path) -> None:
    text = GOOD.replace("rate: 1000/s", f"hours: [{', '.join(['5/s'] * 24)}]") + "executor: {container: 8 GB}\n"
    found = read(
        tmp_path,
        text,
        option("--rate", "5000/s"),
        option("--machines", 7),
        option("--keys", "2000"),
        option("--slide", "10 minutes", "hourly"),
        option("--executor-memory", "4 GiB"),
    )

    scenario = found.scenario
    assert found.profile == Profile((0.0,), (5000.0,))
    assert (scenario.machines.count, scenario.steps["hourly"].keys.value) == (7, 2000)
    assert scenario.steps["hourly"].overlap == 6
    assert scenario.executor is not None
    assert (str(scenario.executor.heap), scenario.executor.container) == ("4 GiB", None)


def test_a_scenario_of_options_alone() -> None:
    given = {
        "--rate": "600/min", "--record-size": "1 KB", "--keys": "100", "--state-size": "8 B", "--emit-size": "8 B",
        "--window": "1 minute", "--checkpoint-interval": "1 s", "--checkpoint-mode": "changes",
        "--network": "1 Gbit/s", "--disks": "local",
    }  # fmt: skip
    found = read_scenario(None, [option(flag, value) for flag, value in given.items()])

    assert found.scenario.source.rate is not None
    assert found.scenario.source.rate.per_second == Fraction(10)
    assert list(found.scenario.steps) == ["step"]


def test_mistakes_in_options_name_the_option() -> None:
    options = [option("--rate", "5"), option("--machines", 0), option("--network", "10 GB")]
    with pytest.raises(PenstockError) as caught:
        read_scenario(None, options)

    found = {problem.message: problem for problem in caught.value.problems}
    assert all(problem.location is None for problem in found.values())
    assert "--rate: '5' does not say in which time; write for example '5/s' or '600/min'" in found
    assert "--machines: must be at least 1" in found
    assert found["'recordSize' is missing in `source`"].hint.endswith("Or give `--record-size`.")


def test_an_option_for_a_step_that_is_not_there(tmp_path: Path) -> None:
    found = mistakes(tmp_path, GOOD, option("--keys", "5", "hourley"))
    assert found == [("USAGE", "", "--keys: there is no step 'hourley'")]


def test_an_option_has_to_say_which_step_it_means(tmp_path: Path) -> None:
    two = GOOD.replace("checkpoints:", "  daily: {keys: 1, state: 1 B, emit: 1 B}\ncheckpoints:")
    assert mistakes(tmp_path, two, option("--keys", "5")) == [
        ("USAGE", "", "--keys does not say of which step: there are hourly, daily")
    ]
    found = read(tmp_path, two, option("--keys", "5", "daily")).scenario
    assert [step.keys.value for step in found.steps.values()] == [1000, 5]


# --- a day of load -------------------------------------------------------------------------------------------------


def test_hours_of_a_day(tmp_path: Path) -> None:
    hours = ", ".join(f"{hour + 1}/s" for hour in range(24))
    found = read(tmp_path, GOOD.replace("rate: 1000/s", f"hours: [{hours}]")).profile

    assert found.rates == tuple(float(hour + 1) for hour in range(24))
    assert found.starts[:3] == (0, 3600, 7200)


def test_a_day_has_24_hours(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GOOD.replace("rate: 1000/s", "hours: [5/s, 6/s]"))
    assert found == (
        "SPEC_BAD_VALUE",
        "1:17",
        "`source.hours`: needs 24 rates, one for each hour of a day, and has 2",
    )
    zeros = ", ".join(["0/s"] * 24)
    assert "is 0 in every hour" in mistakes(tmp_path, GOOD.replace("rate: 1000/s", f"hours: [{zeros}]"))[0][2]


def test_a_profile_is_read_from_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("time,rate\n00:00,100\n06:30,600/min\n18:00:30,2.5\n", "utf-8")
    found = read(tmp_path, GOOD.replace("rate: 1000/s", "profile: day.csv")).profile

    assert found == Profile((0.0, 6.5 * 3600, 18 * 3600 + 30), (100.0, 10.0, 2.5))


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", [(1, 1, "line 1: does not start with the line `time,rate`")]),
        ("time;rate\n00:00;1\n", [(1, 1, "line 1: does not start with the line `time,rate`")]),
        ("time,rate\n01:00,5\n", [(2, 1, "`time`: the first time must be 00:00")]),
        ("time,rate\n00:00,5\n25:00,6\n", [(3, 1, "`time`: '25:00' is not a time of day such as 06:00")]),
        ("time,rate\n00:00,5\n00:00,6\n", [(3, 1, "`time`: '00:00' is not later than the time before it")]),
        ("time,rate\n00:00,-5\n", [(2, 7, "`rate`: '-5' is negative")]),
        ("time,rate\n00:00,5,6\n", [(2, 1, "line 2: has 3 values instead of 2")]),
        ("time,rate\n00:00,0\n", [(1, 1, "`rate`: is 0 all day")]),
        ("time,rate\n", [(1, 1, "`rate`: is 0 all day")]),
    ],
)
def test_mistakes_in_a_profile_are_named_at_their_place(
    text: str, places: list[tuple[int, int, str]], tmp_path: Path
) -> None:
    (tmp_path / "day.csv").write_text(text, "utf-8")
    with pytest.raises(PenstockError) as caught:
        read(tmp_path, GOOD.replace("rate: 1000/s", "profile: day.csv"))

    found = caught.value.problems
    assert {problem.location.file for problem in found if problem.location} == {str(tmp_path / "day.csv")}
    assert [(p.location.line, p.location.column, p.message) for p in found if p.location] == places


def test_a_profile_that_is_not_there_is_named_where_it_is_written(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GOOD.replace("rate: 1000/s", "profile: day.csv"))
    assert found == ("FILE_NOT_FOUND", "1:19", f"no such file: {tmp_path / 'day.csv'}")
