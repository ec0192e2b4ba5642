"""What Spark's analyser knows of a pipeline before it runs: columns, watermarks, state, and whether it can stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.components.base import KernelStep, Sink, Step
from penstock.components.shared.checksum import fits, unsuited
from penstock.components.shared.event_time import DELAY, hold_of
from penstock.engine.again import is_fed_back, pseudo_node
from penstock.engine.dead import COLUMNS, SINK
from penstock.engine.frames import FrameBuilder, columns_of
from penstock.engine.history import History, read, with_history
from penstock.engine.late import late_problems
from penstock.engine.lower import STATEFUL, is_stateful
from penstock.engine.spark_errors import analysis_problem, unsupported_problem
from penstock.errors import PenstockError, Problem, Severity
from penstock.graph.nodes import Analysis, Graph, Node, NodeFacts, Stateful, Watermark
from penstock.spec.pipeline import Step as StepSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Analysed:
    """The frames of all nodes that could be built, the facts about them, and what is wrong or worth a warning."""

    builder: FrameBuilder
    frames: dict[str, DataFrame]
    analysis: Analysis
    problems: tuple[Problem, ...]

    def raise_errors(self) -> None:
        errors = [problem for problem in self.problems if problem.severity is Severity.ERROR]
        if errors:
            raise PenstockError(errors)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is Severity.WARNING)


def analyse(
    spark: SparkSession,
    graph: Graph,
    spool: Path,
    buckets: int | None = None,
    histories: Mapping[str, History] | None = None,
    *,
    careful: bool = False,
    builder_class: Callable[..., FrameBuilder] = FrameBuilder,
) -> Analysed:
    """Builds and checks every node; a node whose input failed is passed over.

    `histories` are read instead of the sources of these names. A `careful` pipeline sets rows aside on which an
    expression fails, instead of ending.
    """
    builder = builder_class(spark, graph, spool, buckets, histories, careful=careful)
    frames: dict[str, DataFrame] = {}
    facts: dict[str, NodeFacts] = {}
    problems: list[Problem] = []
    for node in graph.nodes.values():
        if any(name not in frames for name in node.inputs):
            continue
        if node.kind == "sink":
            facts[node.name] = _sink_facts(graph, node, frames, problems)
            continue
        try:
            frames[node.name] = builder.frame(node, frames)
            facts[node.name] = _facts(node, frames, builder)
            _refuse_taking_back(node, graph, builder, facts, frames)
            _refuse_repeated_inputs(node, frames)
            _refuse_limit(node, frames)
        except Exception as error:
            if not isinstance(error, PenstockError) and not _from_spark(error):
                raise
            frames.pop(node.name, None)
            problems.append(analysis_problem(error, graph, node.name))
    problems.extend(_history_problems(builder, frames))
    problems.extend(_dead_letter_problems(graph))
    problems.extend(_checksum_problems(graph, facts))
    modes = _Modes(spark, graph, frames, facts)
    problems.extend(_changing_problems(graph, builder))
    problems.extend(_late_problems(graph, facts, frames))
    problems.extend(late_problems(graph, [name for name in builder.builds if name in frames], frames))
    problems.extend(modes.problems())
    stateful = {name for name, fact in facts.items() if fact.stateful}
    trunk = builder.trunk(stateful, frames)
    if all(name in frames for name in trunk):
        frames |= builder.apart(trunk, frames, ("OUT",))
        fed = _fed_back_after(builder, trunk, frames)
        frames, trunk = frames | fed, (*trunk, *fed)
    analysis = Analysis(facts=facts, output_mode=modes.chosen, trunk=trunk, passes=builder.passes(frames))
    return Analysed(builder, frames, analysis, tuple(problems))


def _fed_back_after(
    builder: FrameBuilder, trunk: tuple[str, ...], frames: dict[str, DataFrame]
) -> dict[str, DataFrame]:
    """What is fed back to nodes after the streaming query; it travels beside the trunk."""
    graph = builder.graph
    within = {name for end in trunk for name in (end, *graph.ancestors(end))}
    after = [node for node in graph.nodes.values() if node.name not in within and len(node.inputs) == 1]
    return {
        pseudo_node(node.name): builder.fed_back(node.name, frames[node.inputs[0]])
        for node in after
        if is_fed_back(builder.spool, node.name)
    }


def _history_problems(builder: FrameBuilder, frames: Mapping[str, DataFrame]) -> Iterator[Problem]:
    """Histories that cannot be read, or have other columns than their source."""
    graph = builder.graph
    for node, _ in with_history(graph):
        if node.name not in frames or node.name in builder.histories:
            continue
        try:
            read(builder.spark, node, graph.file.folder, builder.spool, builder.live(node))
        except Exception as error:
            if not isinstance(error, PenstockError) and not _from_spark(error):
                raise
            problem = analysis_problem(error, graph, node.name)
            yield Problem(problem.code, problem.params, graph.location(node.name, "bootstrap"))


def _changing_problems(graph: Graph, builder: FrameBuilder) -> Iterator[Problem]:
    """Sinks that would keep both the earlier and the later row of a step that replaces rows."""
    for sink in graph.of_kind("sink"):
        assert isinstance(sink.component, Sink)
        changing = [name for name in graph.ancestors(sink.name) if name in builder.builds]
        culprit = next((name for name in changing if builder.builds[name][0].carried.changes), None)
        if culprit is not None and not sink.component.accepts_updates:
            place = graph.location(sink.name, sink.component.name)
            yield Problem("OUTPUT_NEEDS_UPSERT", {"node": culprit, "sink": sink.name}, place)


def _late_problems(graph: Graph, facts: dict[str, NodeFacts], frames: dict[str, DataFrame]) -> Iterator[Problem]:
    """Steps whose late rows would be dropped although something else is asked for, as Spark's operators run them."""
    for node in graph.of_kind("step"):
        if node.name not in frames or not facts[node.name].stateful or facts[node.name].kernel:
            continue
        assert isinstance(node.spec, StepSpec)
        policy = graph.file.pipeline.late_policy(node.spec).policy
        inherited = sum(_dropping_late(plan_of(frames[name])) for name in node.inputs)
        if policy != "drop" and _dropping_late(plan_of(frames[node.name])) > inherited:
            place = graph.location(node.name, *(["late"] if node.spec.late is not None else []))
            yield Problem("LATE_SPARK_DROPS", {"node": node.name, "policy": policy}, place)


def _dropping_late(plan: Any) -> int:
    """How many operators in a plan drop rows that are older than the watermark."""
    children = [plan.children().apply(index) for index in range(plan.children().size())]
    return int(is_stateful(plan) and _drops_late(plan, children)) + sum(_dropping_late(child) for child in children)


def _drops_late(plan: Any, children: Sequence[Any]) -> bool:
    name = plan.nodeName()
    if name == "Aggregate":
        return _has_event_time(plan.groupingExpressions())
    if name == "Deduplicate":
        return _has_event_time(plan.keys())
    if name in ("Distinct", "Join"):
        return any(_has_event_time(child.output()) for child in children)
    return bool(name == "DeduplicateWithinWatermark")


def _has_event_time(expressions: Any) -> bool:
    found = [expressions.apply(index) for index in range(expressions.size())]
    return any(item.nodeName() == "AttributeReference" and item.metadata().contains(DELAY) for item in found)


def _checksum_problems(graph: Graph, facts: dict[str, NodeFacts]) -> Iterator[Problem]:
    """Columns for checksums that no sink has, or that not everyone writes alike."""
    columns = graph.file.pipeline.ledger.checksum
    sinks = [facts[node.name].columns for node in graph.of_kind("sink") if node.name in facts]
    place = graph.file.places.of("spec", "ledger", "checksum")
    if columns and sinks and not any(fits(columns, known) for known in sinks):
        known = {name for found in sinks for name in found}
        missing = next((name for name in columns if name not in known), columns[0])
        yield Problem("CHECKSUM_COLUMN", {"column": missing, "reason": "which no sink has with the others"}, place)
    wrong = {name: known[name] for known in sinks if fits(columns, known) for name in unsuited(columns, known)}
    for name, kind in wrong.items():
        yield Problem("CHECKSUM_COLUMN", {"column": name, "reason": f"which is {kind}"}, place)


def _dead_letter_problems(graph: Graph) -> Iterator[Problem]:
    sink = graph.file.pipeline.dead_letters
    if isinstance(sink, Sink):
        for problem in sink.check_columns(SINK, COLUMNS):
            place = problem.location or graph.file.places.of("spec", "deadLetters", sink.name)
            yield Problem(problem.code, problem.params, place)


def _from_spark(error: Exception) -> bool:
    """Whether Spark says what is wrong with a step; a few of its errors PySpark does not know, and gives as Java's."""
    from py4j.java_gateway import is_instance_of
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    if isinstance(error, Py4JJavaError):
        return bool(is_instance_of(SparkContext._gateway, error.java_exception, "org.apache.spark.SparkThrowable"))
    return isinstance(error, PySparkException)


def _sink_facts(graph: Graph, node: Node, frames: dict[str, DataFrame], problems: list[Problem]) -> NodeFacts:
    columns = columns_of(frames[node.inputs[0]])
    assert isinstance(node.component, Sink)
    for problem in node.component.check_columns(node.name, columns):
        place = problem.location or graph.location(node.name, node.component.name)
        problems.append(Problem(problem.code, problem.params, place))
    return NodeFacts(columns)


def _facts(node: Node, frames: dict[str, DataFrame], builder: FrameBuilder) -> NodeFacts:
    frame = frames[node.name]
    names = [name.lower() for name in frame.columns]
    for column in frame.columns:
        if names.count(column.lower()) > 1:
            raise PenstockError.of("COLUMN_REPEATED", node=node.name, column=column)
    marks = [item for item in frame.schema.fields if DELAY in (item.metadata or {})]
    watermark = Watermark(marks[0].name, int(marks[0].metadata[DELAY])) if marks else None
    if node.name in builder.builds:
        step = builder.builds[node.name][0]
        assert isinstance(node.component, Step)
        # A query is named after the kernel that computes it, other steps are their kernels.
        kernel = type(step.carried.kernel).__name__.lower()
        operator = node.component.name if isinstance(node.component, KernelStep) else kernel
        kept = Stateful(operator, step.carried.keys or node.component.state_key())
        return NodeFacts(columns_of(frame), watermark, (kept,), kernel=True)
    return NodeFacts(columns_of(frame), watermark, _own_state(node, frames))


def _refuse_taking_back(
    node: Node, graph: Graph, builder: FrameBuilder, facts: dict[str, NodeFacts], frames: dict[str, DataFrame]
) -> None:
    """Raises for state on top of rows that are replaced later, or that Spark's own operators would take for late."""
    if not facts[node.name].stateful or getattr(node.component, "takes_changes", False):
        return
    for name in (name for name in graph.nodes if name in graph.ancestors(node.name) and name in builder.builds):
        if builder.builds[name][0].carried.changes:
            raise PenstockError.of(
                "OPERATORS_UNSUPPORTED",
                node=node.name,
                reason=f"'{name}' gives rows that later ones replace, and it cannot take back what it has counted",
                advice=f"Let '{name}' give final rows only (`emit: close`, `late: drop` or `side`), or store its rows.",
            )
    if not facts[node.name].kernel and any(hold_of(frames[name]) for name in node.inputs):
        raise PenstockError.of(
            "OPERATORS_UNSUPPORTED",
            node=node.name,
            reason="its input gives rows after the watermark has passed them, which Spark would drop as late",
            advice="Use a `window`, `rolling` or `join` step, which wait for them.",
        )


def _refuse_repeated_inputs(node: Node, frames: dict[str, DataFrame]) -> None:
    """Raises if a query reads one of its inputs twice: Spark keeps one position for each source it is given."""
    leaves = plan_of(frames[node.name]).collectLeaves().iterator()
    seen: set[str] = set()
    while leaves.hasNext():
        leaf = leaves.next()
        if not leaf.nodeName().startswith("StreamingRelation"):
            continue
        name = str(leaf.sourceIdentifyingName().name())
        if name in seen:
            raise PenstockError.of(
                "OPERATORS_UNSUPPORTED",
                node=node.name,
                reason=f"it reads the rows of '{name.split('_VIA_')[0]}' twice in one query",
                advice="Add a step that passes the rows on (`sql: SELECT * FROM ...`) and name both under `from`.",
            )
        seen.add(name)


def _refuse_limit(node: Node, frames: dict[str, DataFrame]) -> None:
    """Raises for LIMIT: Spark would run it, and which rows it keeps would depend on where batches are cut."""
    limits = [_has_limit(plan_of(frames[name])) for name in (node.name, *node.inputs)]
    if limits[0] and not any(limits[1:]):
        raise PenstockError.of(
            "OPERATORS_UNSUPPORTED",
            node=node.name,
            reason="LIMIT is not supported on a stream",
            advice="Drop LIMIT: a stream has no end; limit when reading the result.",
        )


def _has_limit(plan: Any) -> bool:
    if plan.nodeName() in ("GlobalLimit", "Offset", "Tail") and plan.isStreaming():
        return True
    return any(_has_limit(plan.children().apply(index)) for index in range(plan.children().size()))


def plan_of(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _own_state(node: Node, frames: dict[str, DataFrame]) -> tuple[Stateful, ...]:
    """The stateful operators a step adds to those of its inputs; its own stand on top of the plan."""
    own = list(_stateful(plan_of(frames[node.name])))
    inherited = sum(len(list(_stateful(plan_of(frames[name])))) for name in node.inputs)
    return tuple(own[: max(len(own) - inherited, 0)])


def _stateful(plan: Any) -> Iterator[Stateful]:
    name = plan.nodeName()
    children = [plan.children().apply(index) for index in range(plan.children().size())]
    if is_stateful(plan):
        yield Stateful(STATEFUL[name], _keys(plan, name))
    for child in children:
        yield from _stateful(child)


def _keys(plan: Any, name: str) -> tuple[str, ...]:
    if name == "Aggregate":
        expressions = plan.groupingExpressions()
    elif name.startswith("Deduplicate"):
        expressions = plan.keys()
    elif name == "Join":
        condition = plan.condition()
        return (_plain(condition.get().sql()),) if condition.isDefined() else ()
    else:
        return ()
    return tuple(_plain(expressions.apply(index).sql()) for index in range(expressions.size()))


def _plain(sql: str) -> str:
    return sql.replace("`", "").split(".")[-1] if sql.count("(") == 0 else sql.replace("`", "")


class _Modes:
    """Chooses how results leave: `append` (final rows only) where Spark can, else `update`."""

    def __init__(self, spark: SparkSession, graph: Graph, frames: dict[str, DataFrame], facts: dict[str, NodeFacts]):
        self.graph = graph
        self.frames = frames
        self.facts = facts
        jvm: Any = spark._jvm
        self.checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        self.append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        self.update = jvm.org.apache.spark.sql.streaming.OutputMode.Update()
        self.chosen = "append"

    def problems(self) -> Iterator[Problem]:
        appends: dict[str, bool] = {}
        updates: dict[str, bool] = {}
        for node in self.graph.nodes.values():
            if node.kind == "sink" or node.name not in self.frames:
                continue
            append_error = self._refusal(node.name, self.append)
            update_error = self._refusal(node.name, self.update)
            appends[node.name], updates[node.name] = append_error is None, update_error is None
            inherited = any(not (appends[name] or updates[name]) for name in node.inputs)
            if append_error is not None and update_error is not None and not inherited:
                yield unsupported_problem(self._telling(append_error, update_error), self.graph, node.name)
        yield from self._choose(appends, updates)

    def _refusal(self, name: str, mode: Any) -> Exception | None:
        try:
            self.checker.checkForStreaming(plan_of(self.frames[name]), mode)
        except Exception as error:
            if not _from_spark(error):
                raise
            return error
        return None

    @staticmethod
    def _telling(append: Exception, update: Exception) -> Exception:
        """The refusal that says more: one is often only about the mode."""
        return append if "output mode" in str(update) else update

    def _choose(self, appends: dict[str, bool], updates: dict[str, bool]) -> Iterator[Problem]:
        stored = [node for node in self.graph.of_kind("sink") if node.inputs[0] in appends]
        changing = [node for node in stored if not appends[node.inputs[0]] and updates[node.inputs[0]]]
        if not changing:
            return
        self.chosen = "update"
        for node in changing:
            assert isinstance(node.component, Sink)
            if not node.component.accepts_updates:
                culprit = self._first_changing(node.inputs[0], appends)
                place = self.graph.location(node.name, node.component.name)
                yield Problem("OUTPUT_NEEDS_UPSERT", {"node": culprit, "sink": node.name}, place)
        for node in stored:
            if not updates[node.inputs[0]] and appends[node.inputs[0]]:
                params = {"first": node.inputs[0], "second": changing[0].inputs[0]}
                yield Problem("OUTPUT_MODES_CLASH", params, self.graph.location(node.inputs[0]))

    def _first_changing(self, name: str, appends: dict[str, bool]) -> str:
        for earlier in self.graph.nodes:
            if earlier in self.graph.ancestors(name) and not appends.get(earlier, True):
                return earlier
        return name


def plan_text(analysed: Analysed) -> str:
    """Spark's plan of the one query, optimised as far as it can be before a batch is known."""
    frame = analysed.builder.query(analysed.frames, analysed.analysis.trunk)
    # Spark refuses to optimise a stream as if it were a table, so its optimiser is asked directly.
    optimiser = frame.sparkSession._jsparkSession.sessionState().optimizer()
    return str(optimiser.execute(plan_of(frame)).toString())
