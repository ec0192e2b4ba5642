"""Every rule finds what it is for, at its place, and nothing in a pipeline that is as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doctor.breaking import BAD, HEALTHY, Break, broken, diagnosed, places

from penstock.doctor.diagnose import diagnose
from penstock.doctor.findings import Severity
from penstock.doctor.registry import rules
from penstock.doctor.state_folder import StateFolder

SECRET_KEY = "AKIAIOSFODNN7EXAMPLE"

BREAKS = [
    # --- state ---
    Break("state-unbounded", "latest: {by: [user], forget: 90 days}", "«latest: {by: [user]}"),
    Break("state-unbounded", "changelog_join: {with: prices, on: [id], version: updated_at, deleted: gone, remember: "
          "7 days}", "«changelog_join: {with: prices, on: [id], version: updated_at, deleted: gone}"),
    Break("state-unbounded", " AND c.ts BETWEEN v.ts AND v.ts + INTERVAL 1 HOUR", "", at="sql: |"),
    Break("state-partitions-unset", "  state: {partitions: 16}\n", "", at="sources:\n"),
    Break("state-partitions-one", "partitions: 16", "partitions: «1"),
    Break("state-stores-many", "partitions: 16", "partitions: «400"),
    Break("state-kept-long", "over: 7 days", "over: «60 days"),
    Break("state-kept-long", "allowed: 1 day", "allowed: «60 days"),
    Break("window-overlap-many", "slide: 5 minutes", "slide: «10 seconds"),
    # --- event time ---
    Break("watermark-delay-zero", "maxDelay: 1 minute, idleAfter: 5 minutes, maxAhead",
          "maxDelay: «0 seconds, idleAfter: 5 minutes, maxAhead"),
    Break("idle-source-blocks", "idleAfter: 5 minutes, maxAhead: 1 hour}", "maxAhead: 1 hour}",
          at="eventTime: {column: ts, maxDelay: 1 minute, maxAhead"),
    Break("clock-bound-off", "maxAhead: 1 hour", "«maxAhead: null"),
    Break("late-policy-implicit", "  late: {policy: side, sink: late_rows}\n", "", at="sources:\n",
          also='    late_rows: {files: {path: "s3a://lake/late", format: json}}\n'),
    # --- sources ---
    Break("starting-offsets-implicit", "topic: messages, startingOffsets: latest", "topic: messages",
          at='kafka: {bootstrap: "b1.example.com:9092,b2.example.com:9092", topic: messages}'),
    Break("starting-offsets-implicit", "topic: shop.items, startingOffsets: earliest", "topic: shop.items",
          at='kafka: {bootstrap: "b1.example.com:9092,b2.example.com:9092", topic: shop.items}'),
    Break("data-loss-skipped", "onDataLoss: stop", "onDataLoss: «skip"),
    Break("source-changes-skipped", "onChanges: stop", "onChanges: «skip"),
    Break("source-retention-short", "ignoreOlderThan: 7 days", "ignoreOlderThan: «2 days"),
    Break("poll-overlap-zero", "overlap: 1 minute", "overlap: «0 seconds"),
    Break("batch-unlimited", "topic: messages, ", "topic: messages, «maxRowsPerBatch: null, "),
    Break("throttle-missing", "overlap: 1 minute\n      throttle: {adaptive: true}\n", "overlap: 1 minute\n",
          at="orders:\n      sql_poll"),
    Break("history-end-unset", ', until: "2024-01-01T00:00:00Z"}', "}", at="bootstrap: {files"),
    Break("kafka-one-broker", 'bootstrap: "b1.example.com:9092,b2.example.com:9092"\n',
          'bootstrap: «"b1.example.com:9092"\n'),
    Break("schema-not-pinned", "format: {parquet: {schema: {id: string, ts: timestamp, user: string}}}",
          "«format: {parquet: {}}"),
    Break("schema-not-pinned", "table: {path: ./items.csv, schema: {id: string, price: double}}",
          "«table: {path: ./items.csv}"),
    # --- sinks ---
    Break("sink-guarantee-weak", 'priced, files: {path: "s3a://lake/priced"}', "priced, «console: {}"),
    Break("sink-needs-key", "        table: accounts\n        key: [id]\n",
          "        table: accounts\n        batchColumn: batch\n", at="postgres:\n"),
    Break("sink-append-not-rewindable", "        batchColumn: batch\n", "", at="mysql:\n        url: mysql://"),
    Break("sinks-share-place", 'files: {path: "s3a://lake/recent"}', 'files: {path: «"s3a://lake/joined/"}'),
    Break("sinks-share-place", 'files: {path: "s3a://lake/dead", format: json}',
          'files: {path: «"s3a://lake/joined", format: json}'),
    Break("source-reads-sink", 'files: {path: "s3a://lake/clicks", ', 'files: {path: «"s3a://lake/recent", '),
    Break("source-reads-sink", 'files: {path: "s3a://lake/clicks", ',
          'files: {recursive: true, path: «"s3a://lake/", '),
    Break("compaction-off", "compact: 50", "«compact: null"),
    Break("sink-on-local-disk", '"s3a://lake/priced"', "«./priced"),
    # --- rows that are set aside ---
    Break("dead-letters-in-state-folder", '  deadLetters:\n    files: {path: "s3a://lake/dead", format: json}\n', "",
          at="sources:\n"),
    Break("dead-letters-not-kept", 'files: {path: "s3a://lake/dead", format: json}', "«memory: {}"),
    Break("late-rows-not-kept", 'late_rows: {files: {path: "s3a://lake/late", format: json}}',
          "late_rows: {«console: {}}"),
    # --- storage ---
    Break("temporary-folder", "path: ./items.csv", "path: «/tmp/items.csv"),
    Break("temporary-folder", 'until: "2024', 'format: {avro: {schemaFile: «/var/tmp/../tmp/view.avsc}}, until: "2024'),
    # --- alerts ---
    Break("page-alert-off", "- {name: failed, when: health == FAILED, severity: page}",
          "- «{name: failed, off: true}"),
    Break("page-alert-weakened", "severity: page", "severity: «info"),
    Break("alert-always-fires", "watermark_lag(views) > 5 minutes", "«watermark_lag(views) > 1 minute"),
    Break("owner-missing", "labels: {team: news}", "«labels: {tier: gold}"),
    # --- secrets ---
    Break("secret-literal", "labels: {team: news}", f"labels: {{team: news, key: «{SECRET_KEY}}}"),
    Break("secret-literal", "SELECT user, window.start AS minute,",
          "«SELECT user, 'https://ann:pass@example.com' AS seen, window.start AS minute,"),
    Break("login-unencrypted", "security: {tls: true, ", "«security: {"),
    Break("login-unencrypted", "https://schemas.example.com", "http://schemas.example.com", at='"http://schemas'),
    Break("login-unencrypted", "?ssl_mode=required", "?ssl_mode=disabled",
          at="mysql://shop:${secret:env/MYSQL_PASSWORD}@db.example.com/shop?ssl_mode=disabled"),
    Break("login-unencrypted", "sslmode=verify-full", "sslmode=disable", at="postgresql://"),
    Break("address-localhost", "@db.example.com/shop?ssl_mode=required", "@localhost/shop",
          at="mysql://shop:${secret:env/MYSQL_PASSWORD}@localhost"),
    # --- operation ---
    Break("restart-budget-zero", "maxPerHour: 6", "maxPerHour: «0"),
    Break("restart-budget-large", "maxPerHour: 6", "maxPerHour: «61"),
    Break("trigger-short", "trigger: 1 second", "trigger: «100 milliseconds"),
    Break("savepoints-off", "  savepoints: {every: 6 hours, keep: 5}\n", "", at="sources:\n"),
    Break("savepoints-many", "every: 6 hours", "every: «30 seconds"),
    Break("savepoints-many", "keep: 5", "keep: «200"),
    Break("tests-missing", "  tests:\n    - name: passes rows on\n      given: {messages: [{id: a}]}\n"
          "      expect: {messages: [{id: a}]}\n", "", at="sources:\n"),
    Break("renamed-from-left", "    priced:\n      from: views\n",
          "    priced:\n      renamedFrom: «enriched\n      from: views\n"),
]  # fmt: skip


def test_nothing_is_found_in_a_healthy_pipeline() -> None:
    diagnosis = diagnose(HEALTHY)

    assert (diagnosis.valid, places(diagnosis.findings)) == (True, [])


@pytest.mark.parametrize("change", BREAKS, ids=lambda change: f"{change.rule}: {change.new[:30]!r}")
def test_a_rule_finds_what_it_is_for_and_no_other_rule_does(change: Break) -> None:
    text, (line, column) = broken(change)

    diagnosis = diagnosed(text)

    assert places(diagnosis.findings) == [(change.rule, line, column)]
    (finding,) = diagnosis.findings
    assert finding.severity is rules()[change.rule].severity
    assert "{" not in finding.message
    assert finding.evidence


def test_a_step_over_sources_of_which_one_has_no_event_time() -> None:
    text = (
        HEALTHY.read_text("utf-8")
        .replace(
            "      eventTime: {column: ts, maxDelay: 1 minute, idleAfter: 5 minutes}\n    messages", "    messages"
        )
        .replace("    hours:\n      from: clicks", "    hours:\n      from: views")
    )

    found = diagnosed(text).findings

    assert [(finding.code, finding.evidence) for finding in found] == [
        ("watermark-missing", {"step": "joined", "source": "clicks"})
    ]
    assert text.splitlines()[found[0].location.line - 1] == "    clicks:"


def test_a_watermark_that_trails_by_days_is_also_one_that_the_usual_alert_always_complains_of() -> None:
    text = HEALTHY.read_text("utf-8").replace(
        "maxDelay: 1 minute, idleAfter: 5 minutes}", "maxDelay: 2 days, idleAfter: 5 minutes}"
    )

    found = diagnosed(text).findings

    assert [(finding.code, finding.location.line, finding.evidence) for finding in found] == [
        (
            "alert-always-fires",
            24,
            {"alert": "watermark_lag", "when": "watermark_lag > 15 minutes", "source": "clicks", "maxDelay": "2 days"},
        ),
        ("watermark-delay-long", 24, {"source": "clicks", "maxDelay": "2 days"}),
    ]


def test_late_rows_that_are_kept_without_a_sink_stay_in_the_state_folder() -> None:
    text = HEALTHY.read_text("utf-8")
    text = text.replace("late: {policy: side, sink: late_rows}", "late: side")
    text = text.replace('    late_rows: {files: {path: "s3a://lake/late", format: json}}\n', "")

    (found,) = diagnosed(text).findings

    assert (found.code, found.severity) == ("late-rows-in-state-folder", Severity.INFO)
    assert text.splitlines()[found.location.line - 1] == "  late: side"


TRIAL = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: trial}
spec:
  sources:
    views: {generator: {dataset: page_views}, eventTime: {column: ts}}
  steps:
    minutes: {from: views, window: {size: 1 minute, values: {n: count(*)}}}
  sinks:
    out: {from: minutes, sqlite: {path: ./out.db, table: minutes, key: [window_start]}}
"""
REAL = TRIAL.replace("generator: {dataset: page_views}", "delta: {path: s3a://lake/views}")


def test_what_only_matters_in_production_is_not_said_of_a_trial() -> None:
    trial = {finding.code for finding in diagnosed(TRIAL).findings}
    real = {finding.code for finding in diagnosed(REAL).findings}

    assert trial == {"tests-missing"}
    assert real - trial == {
        "dead-letters-in-state-folder",
        "late-policy-implicit",
        "owner-missing",
        "savepoints-off",
        "sink-on-local-disk",
        "state-partitions-unset",
    }
    assert all(rules()[code].production_only for code in real - trial)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT user, count(*) AS n FROM views GROUP BY user", "its groups have no window of time"),
        ("SELECT DISTINCT user FROM views", "its groups have no window of time"),
        ("SELECT date(ts) AS day, count(*) AS n FROM views GROUP BY date(ts)", "its groups have no window of time"),
        ("SELECT user, ts, count(*) AS n FROM views GROUP BY user, ts", None),
        ("SELECT count(*) AS n FROM views GROUP BY window(ts, '1 minute')", None),
        ("SELECT count(*) AS n FROM views GROUP BY session_window(ts, '1 minute')", None),
        ("SELECT user, upper(article) AS article FROM views WHERE ms > 3", None),
        ("SELECT no query at all FROM FROM", None),
    ],
)
def test_the_state_of_a_query_is_told_by_its_groups(query: str, reason: str | None) -> None:
    text = TRIAL.replace("window: {size: 1 minute, values: {n: count(*)}}", f'sql: "{query}"')

    found = [finding for finding in diagnosed(text).findings if finding.code == "state-unbounded"]

    assert [finding.evidence["reason"] for finding in found] == ([] if reason is None else [reason])


# --- the state folder --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "temporary"),
    [("/tmp/state", True), ("/var/tmp", True), ("/dev/shm/a/b", True), ("/srv/../tmp/x", True), ("/srv/tmp", False)],
)
def test_a_state_folder_must_not_be_temporary(path: str, temporary: bool) -> None:
    found = diagnosed(HEALTHY.read_text("utf-8"), StateFolder(path)).findings

    assert [finding.code for finding in found] == (["state-in-temporary-folder"] if temporary else [])


@pytest.mark.parametrize(("own", "limit"), [("", "2 GiB"), ("    - {when: disk_free < 10 GiB}\n", "10 GiB")])
def test_a_disk_has_more_room_than_its_alert_asks_for(own: str, limit: str) -> None:
    text = HEALTHY.read_text("utf-8").replace("  tests:\n", f"{own}  tests:\n")
    gib = int(limit.split()[0]) * 2**30

    low = diagnosed(text, StateFolder("/srv/state", gib - 1)).findings
    enough = diagnosed(text, StateFolder("/srv/state", gib)).findings

    codes = [finding.code for finding in low if finding.code == "disk-space-low"]
    assert codes == ["disk-space-low"]
    assert [finding.evidence["limit"] for finding in low if finding.code == "disk-space-low"] == [limit]
    assert [finding.code for finding in enough if finding.code == "disk-space-low"] == []


# --- all of them -------------------------------------------------------------------------------------------


def test_every_rule_is_tested() -> None:
    here = Path(__file__).read_text("utf-8")

    assert [name for name in rules() if f'"{name}"' not in here] == []


def test_ids_texts_and_fixes_of_rules_are_complete() -> None:
    for name, rule in rules().items():
        assert name == name.lower().replace("_", "-")
        assert rule.message
        assert rule.why.endswith(".")
        assert rule.fix.endswith((".", "}"))


IN_BAD = [
    ("owner-missing", 6, 3),
    ("secret-literal", 6, 24),
    ("late-policy-implicit", 8, 3),
    ("state-partitions-unset", 8, 3),
    ("tests-missing", 8, 3),
    ("starting-offsets-implicit", 10, 7),
    ("kafka-one-broker", 10, 26),
    ("data-loss-skipped", 10, 81),
    ("batch-unlimited", 10, 87),
    ("login-unencrypted", 10, 110),
    ("idle-source-blocks", 12, 7),
    ("watermark-delay-zero", 12, 41),
    ("clock-bound-off", 12, 52),
    ("throttle-missing", 13, 5),
    ("address-localhost", 15, 20),
    ("idle-source-blocks", 19, 7),
    ("alert-always-fires", 21, 19),
    ("watermark-delay-long", 21, 19),
    ("history-end-unset", 22, 7),
    ("temporary-folder", 25, 21),
    ("source-retention-short", 25, 50),
    ("schema-not-pinned", 26, 7),
    ("watermark-missing", 28, 5),
    ("login-unencrypted", 30, 14),
    ("poll-overlap-zero", 33, 18),
    ("state-unbounded", 37, 7),
    ("state-unbounded", 40, 7),
    ("window-overlap-many", 45, 16),
    ("state-kept-long", 49, 35),
    ("renamed-from-left", 56, 20),
    ("compaction-off", 58, 68),
    ("sink-needs-key", 59, 29),
    ("sinks-share-place", 59, 43),
    ("sink-append-not-rewindable", 62, 7),
    ("login-unencrypted", 63, 14),
    ("sink-guarantee-weak", 65, 28),
    ("temporary-folder", 66, 44),
    ("sink-on-local-disk", 66, 44),
    ("dead-letters-not-kept", 69, 5),
    ("trigger-short", 71, 14),
    ("restart-budget-large", 72, 27),
    ("savepoints-many", 73, 23),
    ("page-alert-off", 75, 7),
    ("page-alert-weakened", 76, 56),
]


def test_a_bad_pipeline_has_exactly_these_findings() -> None:
    diagnosis = diagnose(BAD)

    assert diagnosis.valid
    assert places(diagnosis.findings) == IN_BAD
