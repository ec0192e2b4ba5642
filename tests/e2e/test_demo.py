"""`make demo`, with runners that need no Spark."""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

from penstock.testing.processes import Process, until, with_variable

FAKE = f"""
import runpy, sys
demo = runpy.run_path({str(ROOT / "scripts" / "demo.py")!r})
demo["main"].__globals__["PENSTOCK"] = (sys.executable, "-m", "tests.control.fake_serve")
sys.exit(demo["main"]())
"""


@pytest.mark.parametrize("at_once", [False, True])
def test_the_demo_runs_three_pipelines_and_leaves_nothing_behind(tmp_path: Path, at_once: bool) -> None:
    (tmp_path / "fake_demo.py").write_text(FAKE, "utf-8")
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT)])
    env = {"PYTHONPATH": paths, "TMPDIR": str(tmp_path), "TESTS_DEMO": tmp_path.name}
    with Process([], tmp_path / "demo.log", env, module="fake_demo") as demo:
        if at_once:
            demo.wait_until(lambda: list(tmp_path.glob("penstock-demo-*/serve.log")), "the server starts")
        else:
            running = re.compile(r"Z (demo|campaigns|machines) (?:RUNNING|IDLE)")
            demo.wait_until(lambda: len(set(running.findall(demo.text))) == 3, "all three run")
            assert re.search(r"^  http://127\.0\.0\.1:\d+/login#code=[\w-]{43}$", demo.text, re.MULTILINE)
        demo.signal(signal.SIGINT)
        assert demo.wait(60) == 0, demo.text
    assert "nothing of it is left" in demo.text
    assert "Traceback" not in demo.text
    assert list(tmp_path.glob("penstock-demo-*")) == []
    until(lambda: with_variable("TESTS_DEMO", tmp_path.name) == [], "all processes have ended", 90)


def test_the_makefile_starts_the_demo() -> None:
    assert "scripts/demo.py" in (ROOT / "Makefile").read_text("utf-8")
    found = runpy.run_path(str(ROOT / "scripts" / "demo.py"), run_name="demo")
    assert all((found["EXAMPLES"] / f"{name}.yaml").exists() for name in found["PIPELINES"])
    assert sys.executable == found["PENSTOCK"][0]
