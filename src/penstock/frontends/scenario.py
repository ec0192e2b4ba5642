"""Reads a capacity scenario from a file, from options of the command line, or from both; options win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.capacity.load import Profile, hourly, steady
from penstock.capacity.memory import executor_memory
from penstock.capacity.scenario import SOURCE, Load, Scenario
from penstock.errors import Location, PenstockError, Problem, did_you_mean
from penstock.frontends.configs import read_config
from penstock.frontends.document import read_document, read_text
from penstock.frontends.findings import Findings
from penstock.frontends.load_profile import read_profile
from penstock.spec.location import Path_, Places

_COMMAND_LINE = "\0command line"
"""The file of places that are options; the line is the number of the option."""
_ANY = "*"
_RATES = ("rate", "hours", "profile")
_PIPELINE_SUFFIXES = (".sql", ".py")

OPTIONS: Mapping[Path_, str] = {
    ("source", "rate"): "--rate",
    ("source", "profile"): "--profile",
    ("source", "recordSize"): "--record-size",
    ("steps", _ANY, "keys"): "--keys",
    ("steps", _ANY, "state"): "--state-size",
    ("steps", _ANY, "windows", "size"): "--window",
    ("steps", _ANY, "windows", "slide"): "--slide",
    ("steps", _ANY, "emit"): "--emit-size",
    ("steps", _ANY, "rows"): "--rows",
    ("stored", "rowSize"): "--stored-size",
    ("stored", "rows"): "--stored-rows",
    ("checkpoints", "every"): "--checkpoint-interval",
    ("checkpoints", "mode"): "--checkpoint-mode",
    ("machines", "count"): "--machines",
    ("machines", "network"): "--network",
    ("machines", "cores"): "--cores",
    ("machines", "rowsPerCore"): "--rows-per-core",
    ("machines", "emittedRowsPerCore"): "--emitted-rows-per-core",
    ("disks", "attached"): "--disks",
    ("executor", "heap"): "--executor-memory",
    ("executor", "container"): "--container-memory",
    ("goals", "margin"): "--margin",
    ("goals", "lag"): "--max-lag",
    ("goals", "catchUp"): "--catch-up",
    ("outage",): "--outage",
}
"""The options that give a value, by its path; `*` is the name of a step."""


@dataclass(frozen=True)
class Option:
    """A value that was given on the command line, and for which steps: `None` for the only one."""

    path: Path_
    value: Any
    step: str | None = None

    @property
    def flag(self) -> str:
        return OPTIONS[self.path]


@dataclass(frozen=True)
class Draft:
    """A scenario before it is checked: plain data with its places, and what it was taken from."""

    content: dict[str, Any]
    places: Places
    problems: tuple[Problem, ...] = ()
    folder: Path = Path()
    taken: tuple[str, ...] = ()
    """What was read out of something else than a scenario, in words."""


@dataclass(frozen=True)
class ScenarioFile:
    """A sound scenario and the rates of its day."""

    scenario: Scenario
    profile: Profile
    taken: tuple[str, ...] = ()


def read_scenario(path: Path | None, options: Sequence[Option] = ()) -> ScenarioFile:
    """The scenario of a file, or of options alone; raises everything that is wrong with it."""
    return checked(draft_of(path), options)


def draft_of(path: Path | None) -> Draft:
    if path is None:
        return Draft({}, Places(""))
    if not path.exists():
        raise PenstockError.of("FILE_NOT_FOUND", path=path)
    text = "" if path.suffix in _PIPELINE_SUFFIXES else read_text(path)
    says_anything = any(line.strip() and not line.strip().startswith("#") for line in text.splitlines())
    if path.suffix not in _PIPELINE_SUFFIXES and not says_anything:
        return Draft({}, Places(str(path), values={(): Location(str(path))}), folder=path.parent)
    document = None if path.suffix in _PIPELINE_SUFFIXES else read_document(text, str(path))
    if document is None or document.content.get("kind") == "Pipeline":
        advice = f"Write `penstock capacity --pipeline {path}`, and give what the file does not say."
        raise PenstockError.of("USAGE", reason=f"{path} is a pipeline, not a scenario", advice=advice)
    return Draft(document.content, document.places, document.problems, path.parent)


def checked(draft: Draft, options: Sequence[Option] = ()) -> ScenarioFile:
    """The scenario of a draft with options; raises everything that is wrong with it."""
    content, places = _with_options(draft, options)
    findings = Findings(places, draft.problems)
    scenario = read_config(Scenario, content, (), findings)
    findings.problems.extend(_absent(content, places))
    profile = None
    if scenario is not None:
        findings.problems.extend(_unsound(scenario, places))
        if not findings.problems:
            profile = _profile(scenario.source, draft.folder, findings)
    if findings.problems or scenario is None or profile is None:
        raise PenstockError([_worded(problem, options) for problem in findings.in_order()])
    return ScenarioFile(scenario, profile, draft.taken)


# --- options -------------------------------------------------------------------------------------------------


def _with_options(draft: Draft, options: Sequence[Option]) -> tuple[dict[str, Any], Places]:
    content = _copied(draft.content)
    places = Places(draft.places.file, dict(draft.places.keys), dict(draft.places.values))
    # Without a file, what is missing is told of each part, so that the option is named that gives it.
    if not draft.places.file:
        content = {"source": {}, "machines": {}, **content}
        if any(option.path[0] == "steps" for option in options):
            content = {"checkpoints": {}, "disks": {}, **content}
    for number, option in enumerate(options):
        for path in _paths(option, content):
            _put(content, path, option.value)
            place = Location(_COMMAND_LINE, number + 1)
            places.values[path] = places.keys[path] = place
            if path[0] == SOURCE and path[-1] in _RATES:
                for other in _RATES:
                    if other != path[-1] and isinstance(content[SOURCE], dict):
                        content[SOURCE].pop(other, None)
            if path == ("executor", "heap") or path == ("executor", "container"):
                content["executor"].pop("container" if path[-1] == "heap" else "heap", None)
    return content, places


def _paths(option: Option, content: Mapping[str, Any]) -> Iterator[Path_]:
    """Where an option belongs: into all steps that it can mean, or the one that it names."""
    if option.path[0] != "steps":
        yield option.path
        return
    steps = content.get("steps")
    names = list(steps) if isinstance(steps, dict) else []
    if option.step is not None and names and option.step not in names:
        reason = f"{option.flag}: there is no step '{option.step}'"
        raise PenstockError.of("USAGE", reason=reason, advice=did_you_mean(option.step, names))
    if option.step is None and len(names) > 1:
        reason = f"{option.flag} does not say of which step: there are {', '.join(names)}"
        raise PenstockError.of("USAGE", reason=reason, advice=f"Write `{option.flag} {names[0]}={option.value}`.")
    name = option.step or (names[0] if names else "step")
    yield ("steps", name, *option.path[2:])


def _put(content: dict[str, Any], path: Path_, value: Any) -> None:
    inner = content
    for part in path[:-1]:
        following = inner.get(str(part))
        if not isinstance(following, dict):
            following = inner[str(part)] = {}
        inner = following
    inner[str(path[-1])] = value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _worded(problem: Problem, options: Sequence[Option]) -> Problem:
    """The problem as it is said of a scenario, or of the option that it is about."""
    params = dict(problem.params)
    location = problem.location
    if params.get("where") == "the pipeline file":
        params["where"] = "the scenario"
    if location is not None and location.file == _COMMAND_LINE:
        flag = options[location.line - 1].flag
        if "where" in params and problem.code != "SPEC_MISSING_KEY":
            params["where"] = flag
        location = None
    elif location is not None and not location.file:
        location = None
    if problem.code == "SPEC_MISSING_KEY":
        params["advice"] = " ".join(filter(None, (params.get("advice"), _option_for(params))))
    return Problem(problem.code, params, location, problem.at)


def _option_for(params: Mapping[str, Any]) -> str:
    """Which option gives a value that is missing."""
    where, key = str(params.get("where", "")), str(params.get("key", ""))
    for path, flag in OPTIONS.items():
        if path[0] == "steps":
            of_step = where.startswith("step '") or (where.endswith("'") and " of step '" in where)
            if of_step and path[-1] == key:
                name = where.rpartition("step '")[2].removesuffix("'")
                return f"Or give `{flag} {name}=VALUE`."
        elif path[-1] == key and where == f"`{'.'.join(map(str, path[:-1]))}`":
            return f"Or give `{flag}`."
    return ""


# --- what single fields cannot tell ----------------------------------------------------------------------------


def _absent(content: Mapping[str, Any], places: Places) -> Iterator[Problem]:
    """What is missing although no single field requires it; told even if something else cannot be read."""

    def missing(key: str, where: str, advice: str, *path: str) -> Problem:
        return Problem("SPEC_MISSING_KEY", {"key": key, "where": where, "advice": advice}, places.of_key(*path))

    source, steps = content.get("source"), content.get("steps")
    if isinstance(source, dict) and all(source.get(key) is None for key in _RATES):
        yield missing("rate", "`source`", "Give `rate`, `hours` or `profile`.", "source")
    if not steps and content.get("stored") is None:
        yield missing("steps", "the scenario", "Give `steps` that keep state, or `stored` if none does.")
    if steps and content.get("checkpoints") is None:
        yield missing("checkpoints", "the scenario", "With `steps`, give `checkpoints: {every: …, mode: …}`.")
    if steps and content.get("disks") is None:
        yield missing("disks", "the scenario", "With `steps`, give `disks: {attached: local}` or `network`.")


def _unsound(scenario: Scenario, places: Places) -> Iterator[Problem]:
    def missing(key: str, where: str, advice: str, *path: str) -> Problem:
        return Problem("SPEC_MISSING_KEY", {"key": key, "where": where, "advice": advice}, places.of_key(*path))

    def unfit(where: str, reason: str, advice: str, *path: str | int) -> Problem:
        return Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": advice}, places.of(*path))

    given = [key for key in _RATES if getattr(scenario.source, key) is not None]
    for extra in given[1:]:
        yield unfit(f"`source.{extra}`", f"is given beside `{given[0]}`", "Keep one of them.", "source", extra)
    yield from _unsound_steps(scenario, places)
    machines = scenario.machines
    if (machines.cores is None) != (machines.rows_per_core is None):
        absent, present = ("cores", "rowsPerCore") if machines.cores is None else ("rowsPerCore", "cores")
        yield missing(absent, "`machines`", f"It goes with `{present}`.", "machines")
    windowed = [name for name, step in scenario.steps.items() if step.closes is not None]
    if machines.cores is not None and windowed and machines.emitted_rows_per_core is None:
        advice = f"All rows of '{windowed[0]}' come at once when its windows end, and cores have to give them out."
        yield missing("emittedRowsPerCore", "`machines`", advice, "machines")
    executor = scenario.executor
    if executor is not None:
        if executor.heap is None and executor.container is None:
            yield missing("heap", "`executor`", "Give `heap` or `container`.", "executor")
        elif executor_memory(executor).heap <= 0 or executor_memory(executor).overhead < 0:
            path = ("executor", "container")
            yield unfit("`executor.container`", "leaves nothing for the heap, or for what is beside it", "", *path)
    if scenario.goals.catch_up is not None and scenario.outage is None:
        yield missing("outage", "the scenario", "`goals.catchUp` is the time after an outage.", "goals")


def _unsound_steps(scenario: Scenario, places: Places) -> Iterator[Problem]:
    for name, step in scenario.steps.items():
        params = {"where": f"`reads` of step '{name}'"}
        if not step.inputs:
            yield Problem("SPEC_BAD_VALUE", {**params, "reason": "must not be empty"}, places.of("steps", name))
        for given in step.inputs:
            reason, advice = "", ""
            if given != SOURCE and given not in scenario.steps:
                reason = f"there is no step '{given}'"
                advice = did_you_mean(given, [SOURCE, *scenario.steps])
            elif given != SOURCE and _reaches(scenario, given, name):
                reason = f"'{given}' gets rows of '{name}' itself"
            if reason:
                found = {**params, "reason": reason, "advice": advice}
                yield Problem("SPEC_BAD_VALUE", found, places.of("steps", name, "reads"))


def _reaches(scenario: Scenario, start: str, goal: str) -> bool:
    """Whether a step gets rows of another, by any way."""
    waiting, seen = [start], set[str]()
    while waiting:
        name = waiting.pop()
        if name == goal:
            return True
        if name in seen or name not in scenario.steps:
            continue
        seen.add(name)
        waiting.extend(scenario.steps[name].inputs)
    return False


def _profile(load: Load, folder: Path, findings: Findings) -> Profile | None:
    if load.rate is not None:
        return steady(float(load.rate.per_second))
    if load.hours is not None:
        return hourly([float(rate.per_second) for rate in load.hours])
    assert load.profile is not None
    option = findings.places.of("source", "profile").file == _COMMAND_LINE
    try:
        return read_profile(Path(load.profile) if option else folder / load.profile)
    except PenstockError as error:
        findings.take(error, ("source", "profile"))
        return None
