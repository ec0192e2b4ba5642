"""What the autoscaler of Flink's operator would decide, as a policy to compare with: its formulas and its defaults.

One operator stands for the pipeline. Busy time comes from batches, where Flink measures it by task.
"""

from __future__ import annotations

import math

from penstock.capacity.autoscale.simulate import Seen

_WINDOW, _STABILISATION, _DOWN_INTERVAL = 900.0, 300.0, 3600.0
_TARGET, _LEAST, _MOST = 0.7, 0.4, 1.0
_CATCH_UP, _RESTART = 1800.0, 300.0
_DOWN_FACTOR, _BEHIND = 0.6, 300.0


class FlinkRules:
    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self._run = -1.0
        self._down: tuple[float, int] | None = None
        """When fewer were enough for the first time, and the most that were needed since then."""

    def __call__(self, seen: Seen) -> int:
        if seen.started != self._run:
            self._run, self._down = seen.started, None
        # Metrics are collected after the stabilisation only, and judged once they fill the window.
        if seen.now - seen.started < _STABILISATION + _WINDOW:
            return seen.cores
        since = seen.now - _WINDOW
        batches = [batch for batch in seen.batches if batch.at >= since]
        if len(batches) < 2:
            return seen.cores
        length = batches[-1].at - batches[0].at
        arrived = sum(batch.rows for batch in batches[1:]) / length
        busy = min(1.0, sum(batch.seconds for batch in batches[1:]) / length)
        lags = [each for each in seen.backlogs if each.at >= since]
        growth = (lags[-1].rows - lags[0].rows) / (lags[-1].at - lags[0].at) if len(lags) > 1 else 0.0
        lag, load = (lags[-1].rows if lags else 0.0), max(0.0, arrived + growth)
        true_rate = arrived / busy if busy else math.inf
        behind = arrived > 0 and lag / arrived > _BEHIND
        upper, lower = (1.0, 0.0) if behind else (_MOST, _LEAST)
        catch_up, restart = lag / _CATCH_UP, load * _RESTART / _CATCH_UP
        factor = (load / _TARGET + catch_up + restart) / true_rate
        wanted = min(max(math.ceil(seen.cores * max(factor, 1 - _DOWN_FACTOR)), self.least), self.most)
        if true_rate < load / upper + catch_up:
            self._down = None
            return max(wanted, seen.cores)
        if lower and true_rate > load / lower + catch_up + restart and wanted < seen.cores:
            return self._later(seen, wanted)
        self._down = None
        return seen.cores

    def _later(self, seen: Seen, wanted: int) -> int:
        """Fewer are only given after an hour, and then as many as were needed at most in it."""
        since, most = self._down or (seen.now, wanted)
        self._down = since, max(most, wanted)
        if seen.now - since < _DOWN_INTERVAL:
            return seen.cores
        return min(self._down[1], seen.cores)
