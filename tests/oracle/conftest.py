"""Every oracle judges each way in which kernels are carried, by the same rules but for when the watermark counts."""

from __future__ import annotations

import pytest

WAYS = {
    "spark": {},
    "chunks": {"PENSTOCK_STATE_STORE": "chunks", "PENSTOCK_KERNELS_ON": "driver"},
    "chunks-in-tasks": {"PENSTOCK_STATE_STORE": "chunks", "PENSTOCK_KERNELS_ON": "tasks"},
}


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How kernels are carried."""
    for name, value in WAYS[request.param].items():
        monkeypatch.setenv(name, value)
    return str(request.param)
