"""Sinks on real servers, for pipelines that are killed: how they are declared, and which rows they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow.parquet
from tests.faults.victim import shown

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka
    from tests.servers.mariadb import MariaDb
    from tests.servers.postgres import Postgres
    from tests.servers.s3 import S3
    from tests.servers.sql import Database


class Outside(Protocol):
    """A sink on a server."""

    @property
    def kind(self) -> str: ...

    @property
    def config(self) -> str: ...

    @property
    def env(self) -> Mapping[str, str]: ...

    def ids(self) -> list[int]: ...


@dataclass(frozen=True)
class Objects:
    """Files in a bucket, merged every few batches."""

    s3: S3
    bucket: str
    kind: str = "s3"

    @property
    def config(self) -> str:
        keys = "accessKey: '${secret:env/VICTIM_KEY}', secretKey: '${secret:env/VICTIM_SECRET}'"
        address = f"endpoint: '{self.s3.endpoint}', {keys}"
        return f"files: {{path: 's3a://{self.bucket}/victims', compact: 3, entropy: true, s3: {{{address}}}}}"

    @property
    def env(self) -> Mapping[str, str]:
        return {"VICTIM_KEY": self.s3.access_key, "VICTIM_SECRET": self.s3.secret_key}

    def ids(self) -> list[int]:
        files, root = self.s3.filesystem(), f"{self.bucket}/victims"
        manifests = []
        for name in self.s3.files(self.bucket):
            if name.startswith("victims/_penstock/batches/"):
                with files.open_input_stream(f"{self.bucket}/{name}") as stream:
                    manifests.append(json.loads(stream.read()))
        paths = [f"{root}/{file['path']}" for manifest in shown(manifests) for file in manifest["files"]]
        return [row for path in paths for row in pyarrow.parquet.read_table(path, filesystem=files)["id"].to_pylist()]


@dataclass(frozen=True)
class Table:
    """A table of a database server."""

    kind: str
    server: Postgres | MariaDb
    database: Database

    @property
    def _variable(self) -> str:
        return f"VICTIM_{self.kind.upper()}"

    @property
    def config(self) -> str:
        # A few rows are already many, so that tasks load them themselves.
        return f'{self.kind}: {{url: "${{secret:env/{self._variable}}}", table: victims, bulkRows: 15}}'

    @property
    def env(self) -> Mapping[str, str]:
        place = self.database
        scheme = "postgresql" if self.kind == "postgres" else "mysql"
        return {self._variable: f"{scheme}://{place.user}:{place.password}@{place.host}:{place.port}/{place.name}"}

    def ids(self) -> list[int]:
        with self.server.connect(self.database.name) as connection, connection.cursor() as cursor:
            missing = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'victims'"
            if self.kind == "mysql":
                missing += f" AND table_schema = '{self.database.name}'"
            cursor.execute(missing)
            (found,) = cursor.fetchone() or (0,)
            if not found:
                return []
            cursor.execute("SELECT id FROM victims")
            return [int(row[0]) for row in cursor.fetchall()]


@dataclass(frozen=True)
class Topic:
    """A topic, as readers of committed messages see it."""

    kafka: Kafka
    topic: str
    kind: str = "kafka"
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> str:
        return f'kafka: {{bootstrap: "{self.kafka.bootstrap}", topic: {self.topic}}}'

    def ids(self) -> list[int]:
        return [int(json.loads(value)["id"]) for value in self.kafka.values(self.topic)]
