"""A backlog behind a sink that takes only so much: adaptive intake never drives it into errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.engine.running import run

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from tests.conftest import Project
    from tests.servers.postgres import Postgres
    from tests.servers.sql import Database

ROWS = 30_000
_SLOW = """
    CREATE TABLE views (id text, "user" text);
    CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN IF random() < 0.1 THEN PERFORM pg_sleep(0.001); END IF; RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON views FOR EACH ROW EXECUTE FUNCTION slowly();
"""
_BODY = """
    sources:
      views:
        generator: {{dataset: page_views, rows: {rows}, seed: 1}}
        throttle: {{adaptive: {adaptive}}}
    steps:
      short: {{from: views, select: [id, user]}}
    sinks:
      out: {{from: short, postgres: {{url: "${{secret:env/PG}}", table: views}}}}
"""


@pytest.mark.spark
def test_a_sink_that_takes_only_so_much_is_not_driven_into_errors(
    project: Project, postgres: Postgres, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows take the server a while, and it gives up a statement after two seconds."""
    place = postgres_database
    url = f"postgresql://{place.user}:{place.password}@{place.host}:{place.port}/{place.name}"
    monkeypatch.setenv("PG", url)
    with postgres.connect(place.name) as connection:
        connection.execute(_SLOW)
        connection.execute(f"ALTER DATABASE {place.name} SET statement_timeout = '2s'")
        connection.commit()
    with pytest.raises(PenstockError) as raised:
        run(project.build(_BODY.format(rows=ROWS, adaptive="false")), project.folder / "state")
    assert (raised.value.code, "timeout" in str(raised.value)) == ("SINK_FAILED", True)

    outcome = run(project.build(_BODY.format(rows=ROWS, adaptive="true")), project.folder / "adaptive")
    sizes = [entry.rows_out["out"] for entry in outcome.ledger]
    with postgres.connect(place.name) as connection:
        stored = connection.execute("SELECT count(*), count(DISTINCT id) FROM views").fetchone()
    assert stored == (ROWS, ROWS)
    # It found out how much the server takes in a second: more than at first, and never all at once.
    assert sizes[0] == 1_000
    assert 1_000 < max(sizes) < ROWS * 0.7
