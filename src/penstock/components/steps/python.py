"""A Python function over the rows."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.components.base import ERROR, RAW, CheckContext, Step, StepContext
from penstock.components.shared.arrow import Batches, in_arrow
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Python(Step):
    """Calls a Python function.

    With `over: frame` the function gets the input DataFrames, in the order of `from`, and returns a DataFrame; it is
    called once and must not run jobs. With `over: arrow` it gets an iterator of `pyarrow.RecordBatch` and yields
    record batches of the declared `schema`; it is called in each task and must not depend on how rows are batched.
    """

    name: ClassVar[str] = "python"
    inputs_expected: ClassVar[tuple[int, int]] = (1, 64)
    example: ClassVar[str] = """\
from: views
python: {function: "mypipeline.steps:clean", over: frame}
"""

    function: str = field(
        holds=Holds.CODE, doc="`module:function`; the module lies beside the pipeline file or is installed.",
        change=Change.RESTART, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
    )  # fmt: skip
    over: Literal["frame", "arrow"] = field("frame", doc="What the function works on.", change=Change.RESTART)
    row_schema: Schema | None = field(
        None, alias="schema", doc="Columns the function yields; needed for `over: arrow`.", change=Change.BOOTSTRAP
    )

    def check(self, context: CheckContext) -> Iterator[Problem]:
        if self.over == "arrow" and self.row_schema is None:
            where = f"python of '{context.node}'"
            yield Problem("SPEC_MISSING_KEY", {"key": "schema", "where": where, "advice": "`over: arrow` needs it."})

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        function = self._load(context.folder, context.node)
        if self.over == "arrow":
            return self._over_arrow(inputs, context, function)
        try:
            frame = function(*inputs.values())
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise PenstockError.of("PYTHON_STEP_FAILED", node=context.node, reason=reason) from error
        if not hasattr(frame, "writeStream"):
            reason = f"it returned {type(frame).__name__}, not a DataFrame"
            raise PenstockError.of("PYTHON_STEP_FAILED", node=context.node, reason=reason)
        return frame  # type: ignore[no-any-return]

    def _over_arrow(
        self, inputs: Mapping[str, DataFrame], context: StepContext, function: Callable[..., Any]
    ) -> DataFrame:
        if len(inputs) != 1 or self.row_schema is None:
            raise PenstockError.of(
                "INPUT_COUNT", node=context.node, component="python over arrow", expected="one input", found=len(inputs)
            )
        (frame,) = inputs.values()
        return in_arrow(frame, function, self.row_schema.ddl)

    def careful(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame | None:
        if self.over != "arrow" or self.row_schema is None:
            return None
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType

        (frame,) = inputs.values()
        declared = StructType.fromDDL(self.row_schema.ddl)
        assert isinstance(declared, StructType)
        schema = to_arrow_schema(declared)
        told = one_by_one(self._load(context.folder, context.node), schema)
        return in_arrow(frame, told, f"{self.row_schema.ddl}, `{RAW}` string, `{ERROR}` string")

    def _load(self, folder: Path, node: str) -> Callable[..., Any]:
        module_name, _, function_name = self.function.partition(":")
        try:
            module = _import(module_name, folder)
            return getattr(module, function_name)  # type: ignore[no-any-return]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise PenstockError.of("PYTHON_STEP_NOT_FOUND", node=node, target=self.function, reason=reason) from error


def one_by_one(function: Callable[..., Any], schema: pa.Schema) -> Batches:
    """The function with the rows it fails on told apart: what fails is halved until single rows are left.

    The function gives rows of the schema.
    """

    def wrapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _halved(function, schema, batch)

    return wrapped


def _halved(function: Callable[..., Any], schema: pa.Schema, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    try:
        found = list(function(iter([batch])))
    except Exception as error:
        if batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from _halved(function, schema, batch.slice(0, half))
            yield from _halved(function, schema, batch.slice(half))
        elif batch.num_rows == 1:
            row = json.dumps(batch.to_pylist()[0], default=str)
            nothing = {item.name: pa.nulls(1, item.type) for item in schema}
            yield pa.record_batch({**nothing, RAW: [row], ERROR: [f"{type(error).__name__}: {error}"]})
        return
    for part in found:
        nothing = pa.nulls(part.num_rows, pa.string())
        yield part.append_column(RAW, nothing).append_column(ERROR, nothing)


def _import(name: str, folder: Path) -> ModuleType:
    """A module beside the pipeline file, shipped to the workers by value; else an installed one."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    if not file.is_file():
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
