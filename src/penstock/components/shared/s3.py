"""Object stores that speak S3: where they are, who asks, and what their errors mean.

Penstock has a client of its own: it puts an object whole and only where none is, which a file system on top of S3
does by copying. Spark reads through `s3a` and is told the same address and keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.access.limits import check_address, current
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Config, Holds
from penstock.spec.fields import field as setting

if TYPE_CHECKING:
    from obstore.store import S3Store
    from pyspark.sql import SparkSession

SCHEMES = ("s3a", "s3")
BUCKET = re.compile(r"\w+://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/|$)")
_REGION = "us-east-1"
_AMAZON = "s3.amazonaws.com"


REACHED = (
    "How the object store is reached. What is left out is taken from Spark's `fs.s3a` options, or else from "
    "`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, or is the "
    "role of the machine."
)


class S3(Config):
    """The address of an object store and the keys to it."""

    endpoint: str | None = setting(
        None, holds=Holds.ADDRESS, doc="Address such as `https://minio.example.org:9000`. Default: Amazon's."
    )
    region: str | None = setting(None, holds=Holds.NAME, doc="Region of the bucket.", pattern=r"^[a-z0-9-]{1,50}$")
    access_key: str | None = setting(None, holds=Holds.LOGIN, doc="The access key, as a secret reference.", secret=True)
    secret_key: str | None = setting(None, holds=Holds.LOGIN, doc="Its secret, as a secret reference.", secret=True)

    def problems(self, path: str, node: str) -> Iterator[Problem]:
        """What is wrong with it for what lies at a path."""
        where = f"s3 of '{node}'"
        if self != S3() and not is_s3(path):
            reason = f"{path} is no place in an object store"
            advice = "Leave `s3` out, or write the path as s3a://bucket/folder."
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": advice}, at=("path",))
        elif is_s3(path) and not BUCKET.match(path):
            reason = f"{path} does not name a bucket"
            advice = "Write s3a://bucket/folder; a bucket has lower-case letters, digits, dots and dashes."
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": advice}, at=("path",))
        if self.endpoint is not None and not _is_address(self.endpoint):
            reason = "endpoint must be http:// or https:// with a host, and nothing after it"
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason}, at=("s3", "endpoint"))
        if (self.access_key is None) != (self.secret_key is None):
            missing = "accessKey" if self.access_key is None else "secretKey"
            params = {"key": missing, "where": where, "advice": "A key goes with its secret."}
            yield Problem("SPEC_MISSING_KEY", params, at=("s3", missing))


def is_s3(path: str) -> bool:
    return path.split("://")[0] in SCHEMES and "://" in path


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises if it is no number
    except ValueError:
        return False
    plain = not (parts.username or parts.password or parts.query or parts.fragment) and parts.path in ("", "/")
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


@dataclass(frozen=True)
class Access:
    """Where a bucket is and who asks; plain values, as it travels to Spark's tasks."""

    bucket: str
    prefix: str
    """Of all keys below the path, without a slash at its end."""
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    elsewhere: bool = True
    """Whether answers may send the client to another server, as Amazon's do."""

    @property
    def place(self) -> str:
        """What may be shown of where it is."""
        return f"{self.endpoint or _AMAZON}, bucket {self.bucket}"

    @property
    def client_options(self) -> dict[str, str]:
        """Options of both libraries that ask by themselves; Spark's client follows no answer to another server.

        They follow any. So a server that is reached by https sends nobody to one without, where metadata of clouds are.
        One that is reached without is its own proxy: whatever address it gives, the client connects to it alone.
        """
        plain = self.endpoint is not None and self.endpoint.lower().startswith("http://")
        options = {"allow_http": "true" if plain else "false"}
        return options | ({"proxy_url": self.endpoint or ""} if plain and not self.elsewhere else {})

    def spark_options(self, prefix: str) -> dict[str, str]:
        """The same in words of Spark's file system."""
        options = {} if self.region is None else {"endpoint.region": self.region}
        if self.endpoint is not None:
            options = {"endpoint.region": _REGION, **options, "endpoint": self.endpoint, "path.style.access": "true"}
        if self.access_key is not None:
            provider = "Temporary" if self.session_token else "Simple"
            options["aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{provider}AWSCredentialsProvider"
            options |= {"access.key": self.access_key, "secret.key": self.secret_key or ""}
        if self.session_token is not None:
            options["session.token"] = self.session_token
        return {f"{prefix}{key}": value for key, value in options.items()}

    def delta_options(self) -> dict[str, str]:
        """The same in words of the library for Delta tables."""
        named = {
            "aws_endpoint_url": self.endpoint,
            "aws_region": self.region or _REGION,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_session_token": self.session_token,
            "aws_conditional_put": "etag",
            **self.client_options,
        }
        return {name: value for name, value in named.items() if value is not None}


def access(path: str, s3: S3, spark: SparkSession | None = None) -> Access:
    """Who asks for a path: by the component's own setting, Spark's options, or the environment, in this order."""
    bucket, _, prefix = path.split("://", 1)[1].partition("/")
    sources = (_of_setting(s3), _of_spark(bucket, spark), of_environment(os.environ))
    endpoint = next((found["endpoint"] for found in sources if found.get("endpoint")), None)
    region = next((found["region"] for found in sources if found.get("region")), None)
    elsewhere = True
    if endpoint is not None and endpoint == s3.endpoint:
        check_address(endpoint, "an object store")
        # Hosts that an operator has named are trusted with where they send to.
        limits = current()
        elsewhere = limits is None or bool(limits.addresses.hosts)
    # A key, its secret and its token belong together.
    keys = next((found for found in sources if found.get("access_key")), {})
    return Access(
        bucket, prefix.strip("/"), endpoint, region,
        keys.get("access_key"), keys.get("secret_key"), keys.get("session_token"), elsewhere,
    )  # fmt: skip


def _of_setting(s3: S3) -> Mapping[str, str | None]:
    return s3.model_dump()


def _of_spark(bucket: str, spark: SparkSession | None) -> Mapping[str, str | None]:
    if spark is None:
        return {}
    jvm: Any = spark
    conf = jvm._jsparkSession.sessionState().newHadoopConf()

    def get(key: str) -> str | None:
        found = conf.get(f"fs.s3a.bucket.{bucket}.{key}") or conf.get(f"fs.s3a.{key}")
        return str(found) if found else None

    endpoint = get("endpoint")
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"{'http' if get('connection.ssl.enabled') == 'false' else 'https'}://{endpoint}"
    return {
        "endpoint": None if endpoint is None or endpoint.endswith(_AMAZON) else endpoint,
        "region": get("endpoint.region"),
        "access_key": get("access.key"),
        "secret_key": get("secret.key"),
        "session_token": get("session.token"),
    }


def of_environment(env: Mapping[str, str]) -> Mapping[str, str | None]:
    return {
        "endpoint": env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL"),
        "region": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
        "access_key": env.get("AWS_ACCESS_KEY_ID"),
        "secret_key": env.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": env.get("AWS_SESSION_TOKEN"),
    }


def session_options(env: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark for what the environment says; keys it finds there by itself."""
    found = of_environment(env)
    return Access("", "", found["endpoint"], found["region"]).spark_options("spark.hadoop.fs.s3a.")


def tell(spark: SparkSession, found: Access) -> None:
    """Lets Spark's readers reach the bucket too."""
    jsc = spark.sparkContext._jsc
    assert jsc is not None
    for key, value in found.spark_options(f"fs.s3a.bucket.{found.bucket}.").items():
        jsc.hadoopConfiguration().set(key, value)


# --- the client ----------------------------------------------------------------------------------------------


@cache
def store(found: Access, hasty: bool = False) -> S3Store:
    """A client whose names are below the prefix. A hasty one gives up after seconds: to see whether all is well."""
    from obstore.store import S3Store

    options: Any = found.client_options
    return S3Store(
        found.bucket,
        prefix=found.prefix or None,
        region=found.region or _REGION,
        client_options=options,
        retry_config={"max_retries": 2 if hasty else 10, "retry_timeout": timedelta(seconds=10 if hasty else 120)},
        **_explicitly(found),
    )


def _explicitly(found: Access) -> dict[str, Any]:
    """What is known, in words that go before the environment, which the client reads by itself."""
    wanted: dict[str, Any] = {}
    if found.endpoint is not None:
        wanted["aws_endpoint_url_s3"] = found.endpoint
    if found.access_key is not None:
        keys = {"access_key_id": found.access_key, "secret_access_key": found.secret_key, "token": found.session_token}
        wanted["credential_provider"] = lambda: {**keys, "expires_at": None}
    return wanted


class Trouble(Enum):
    MISSING = auto()
    DENIED = auto()
    UNREACHABLE = auto()
    OTHER = auto()


class S3Failed(Exception):
    """What an object store has answered, in one line."""

    def __init__(self, trouble: Trouble, reason: str, place: str) -> None:
        super().__init__(reason)
        self.trouble, self.reason, self.place = trouble, reason, place

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Failed, (self.trouble, self.reason, self.place)

    def told(self, node: str, batch: int | None = None, *, reading: bool = False) -> PenstockError:
        """For the one who runs the pipeline."""
        kind = "SOURCE" if reading else "SINK"
        if self.trouble is Trouble.MISSING:
            return PenstockError.of("PATH_NOT_FOUND", where=f"the bucket of '{node}'", path=self.place)
        if self.trouble is Trouble.DENIED:
            return PenstockError.of(f"{kind}_DENIED", node=node, server=self.place, reason=self.reason)
        if self.trouble is Trouble.UNREACHABLE:
            return PenstockError.of(f"{kind}_UNREACHABLE", node=node, server=self.place, reason=self.reason)
        advice = "Nothing of the batch was stored." if not reading else "Run again once the store answers."
        number = "?" if batch is None else batch
        return PenstockError.of(f"{kind}_FAILED", node=node, batch=number, reason=self.reason, advice=advice)


_CAUSE = re.compile(r'message: "([^"]+)"')
_ANSWER = re.compile(r"<Code>(\w+)</Code>(?:<Message>([^<]*)</Message>)?")
_STATUS = re.compile(r"status code: (\d{3}[^:\n]*)")
_ELSEWHERE = ("PermanentRedirect", "AuthorizationHeaderMalformed")
_DENIED = ("AccessDenied", "SignatureDoesNotMatch", "InvalidAccessKeyId", "XAdminUserNotFound", "ExpiredToken",
           "InvalidToken", "AccountProblem", "AllAccessDisabled")  # fmt: skip


def failure(error: Exception, found: Access) -> S3Failed:
    """An error of the client in words."""
    text = str(error)
    answer, status = _ANSWER.search(text), _STATUS.search(text)
    code = answer[1] if answer else ""
    reason = f"{answer[2] or code} ({code})" if answer else status[1] if status else _first(text)
    if code in _ELSEWHERE:
        reason = f"{reason}; set `region` to that of the bucket"
    if code == "NoSuchBucket":
        return S3Failed(Trouble.MISSING, reason, found.place)
    if code in _DENIED or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return S3Failed(Trouble.DENIED, reason, found.place)
    if status and status[1].startswith(("401", "403")):
        return S3Failed(Trouble.DENIED, reason, found.place)
    if not status:
        return S3Failed(Trouble.UNREACHABLE, reason, found.place)
    return S3Failed(Trouble.OTHER, reason, found.place)


def _first(text: str) -> str:
    """The innermost cause, or the end of the first line: what comes before it is about the request."""
    causes = _CAUSE.findall(text)
    return causes[-1] if causes else text.split("\n")[0].split(" - ")[-1].strip()[:200]


@contextmanager
def answered(found: Access) -> Iterator[None]:
    """Turns errors of the client into S3Failed; that an object is not there, or is there already, passes."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except AlreadyExistsError:
        raise
    except FileNotFoundError as error:
        if "NoSuchKey" in str(error):
            raise
        raise failure(error, found) from None
    except BaseError as error:
        raise failure(error, found) from None
