"""Instant queries to a Prometheus, or what speaks its protocol: at a URL, or a service of a cluster."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import msgspec
import urllib3

from watchdog.core.errors import Problem
from watchdog.kube.failure import ApiError, DaemonError, explain
from watchdog.kube.wire import DECODE_ERRORS, decode_json

if TYPE_CHECKING:
    from watchdog.kube.client import Api

_LIMIT_S: Final = 30.0
_LARGEST: Final = 64 * 2**20  # bytes; 5,000 nodes give some 5 MiB
_CHUNK: Final = 2**16
_ADDRESS: Final = "check the address that --prometheus names, and whether a Prometheus is there"
_CREDENTIALS: Final = "give it what it asks for by --prometheus-header, or ask its administrator"
_REFUSAL: Final = "see its log; a limit of its own may be too low, such as --query.timeout or --query.max-samples"
_SERVICE_REMEDIES: Final[Mapping[int, str]] = {
    403: "an administrator gives you `get` on services/proxy in namespace {namespace}",
    404: "`kubectl -n {namespace} get services` lists those that there are",
    503: "see whether its pods run, and its port: `kubectl -n {namespace} describe service {name}`",
}


class _Sample(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, rename="camel", frozen=True, gc=False):
    result_type: str = ""
    result: list[_Sample] = []


class _Response(msgspec.Struct, frozen=True, gc=False):
    status: str = ""
    data: _Data | None = None
    error: str = ""


_DECODER: Final = msgspec.json.Decoder(_Response)
# The labels and the value of a series.
Sample = tuple[Mapping[str, str], float]
Ask = Callable[[str], bytes]


def ask_url(url: str, headers: Mapping[str, str]) -> Ask:
    """How a Prometheus at a URL is asked a query; ValueError if it is no URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an address: write http://HOST:PORT, or NAMESPACE/SERVICE:PORT")
    # Two queries may be asked at the same time.
    manager = urllib3.PoolManager(maxsize=2, headers={"User-Agent": "gpu-watchdog", **headers})
    address = f"{url.rstrip('/')}/api/v1/query"
    # A password has no place in a message.
    where = f"Prometheus at {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()}"

    def ask(query: str) -> bytes:
        try:
            response = manager.request(
                "POST",
                address,
                fields={"query": query},
                encode_multipart=False,
                timeout=_LIMIT_S,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            with contextlib.closing(response):
                body = _read(response, where)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise DaemonError(Problem(explain(error, where).cause, _ADDRESS)) from error
        return _checked(response.status, body, where)

    return ask


def ask_service(api: "Api", service: str) -> Ask:
    """How a Prometheus is asked that is the service `NAMESPACE/NAME:PORT` of a cluster, through its API server."""
    namespace, _, name = service.partition("/")
    name, _, port = name.partition(":")
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{quote(name, safe='')}:{quote(port or '9090')}"
    where = f"Prometheus in service {service}"

    def ask(query: str) -> bytes:
        try:
            response = api.call("GET", f"{path}/proxy/api/v1/query", {"query": query}, read_timeout_s=_LIMIT_S)
        except ApiError as error:
            raise DaemonError(error.problem) from error
        if response.reason:  # of the API server, which did not get as far as a Prometheus
            remedy = _SERVICE_REMEDIES.get(response.status, "").format(namespace=namespace, name=name)
            problem = response.problem(where)
            raise DaemonError(Problem(problem.cause, remedy or problem.remedy))
        return _checked(response.status, response.body, where)

    return ask


def _read(response: urllib3.BaseHTTPResponse, where: str) -> bytes:
    """The whole body, within bounds; DaemonError, and urllib3's errors."""
    body, until_s = bytearray(), time.monotonic() + _LIMIT_S
    while chunk := response.read1(_CHUNK):
        body += chunk
        if len(body) > _LARGEST or time.monotonic() > until_s:
            cause = f"{where}: its answer exceeds {_LARGEST // 2**20} MiB, or takes more than {_LIMIT_S:.0f} s"
            raise DaemonError(Problem(cause, _ADDRESS))
    return bytes(body)


def _checked(status: int, body: bytes, where: str) -> bytes:
    if status != HTTPStatus.OK and not body.lstrip().startswith(b"{"):
        text = " ".join(body[:300].decode("utf-8", errors="replace").split())
        is_refusal = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        cause = f"{where} answers {status}{f': {text}' if text else ''}"
        raise DaemonError(Problem(cause, _CREDENTIALS if is_refusal else _ADDRESS))
    return body


def instant(ask: Ask, query: str) -> Sequence[Sample]:
    """The series that a query gives now, without those whose value is no finite number; DaemonError."""
    try:
        response = decode_json(_DECODER, ask(query))
    except DECODE_ERRORS as error:
        raise DaemonError(Problem(f"that is not a Prometheus: {error}", _ADDRESS)) from error
    if response.status != "success" or response.data is None or response.data.result_type != "vector":
        cause = f"Prometheus refuses the query: {response.error or 'no reason is given'}"
        raise DaemonError(Problem(cause, _REFUSAL))
    numbers = ((sample.metric, _number(sample.value[1])) for sample in response.data.result)
    return [(labels, number) for labels, number in numbers if number is not None]


def _number(text: str) -> float | None:
    """A sample's value; None if it is no number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
