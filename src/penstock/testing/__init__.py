"""The test kit: feed rows to a whole pipeline batch by batch, move its watermark, crash it, and look at the outcome."""

from penstock.testing.cases import CaseResult, run_case, run_cases
from penstock.testing.compare import differences
from penstock.testing.crash import CrashTest
from penstock.testing.harness import Harness
from penstock.testing.kills import Kill
from penstock.testing.session import shared_session

__all__ = ["CaseResult", "CrashTest", "Harness", "Kill", "differences", "run_case", "run_cases", "shared_session"]
