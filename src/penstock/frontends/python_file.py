"""Runs a Python file and takes the pipeline it defines."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from penstock.errors import Location, PenstockError
from penstock.frontends.python import Pipeline
from penstock.spec.location import PipelineFile


def load_python(path: Path) -> PipelineFile:
    """The one pipeline that a Python file assigns to a module-level name.

    The file runs as a module that is not `__main__`, with its folder on the import path. What it imports from
    there is forgotten afterwards, so that files of two folders may have modules of the same name.
    """
    module = _run(path)
    found = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    if len(found) != 1:
        raise PenstockError.of("PYTHON_FILE_NO_PIPELINE", Location(str(path)), path=path, count=len(found))
    (pipeline,) = found.values()
    return pipeline.file(path)


def _run(path: Path) -> ModuleType:
    module = ModuleType(f"_pipeline_{path.stem}")
    module.__file__ = str(path.resolve())
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        with _importing_from(path.resolve().parent, module):
            exec(code, vars(module))
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {_first_line(error)}"
        place = _place(error, str(path))
        raise PenstockError.of("PYTHON_FILE_FAILED", place, path=path, reason=reason) from error
    return module


@contextmanager
def _importing_from(folder: Path, module: ModuleType) -> Iterator[None]:
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder) and "site-packages" not in file:
                del sys.modules[name]


def _first_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return error.msg
    return str(error).splitlines()[0] if str(error) else ""


def _place(error: BaseException, file: str) -> Location:
    """The line in the user's file, even if the error was raised in what it called."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return Location(file, error.lineno or 1, error.offset or 1)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if not frames:
        return Location(file)
    return Location(file, frames[-1].lineno or 1, (frames[-1].colno or 0) + 1)
