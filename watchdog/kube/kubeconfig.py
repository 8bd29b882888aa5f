"""Kubeconfig files -> what the official client needs of them, with a clear error for everything that it can't use.

Files written by hand contain anything. The client's own errors name no entry, or quote entries with their tokens, and
some of its exceptions are not meant for its callers.
"""

import base64
import os
import re
import shlex
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from yaml import MarkedYAMLError, SafeLoader, YAMLError
from yaml.nodes import MappingNode, Node, SequenceNode

from watchdog.core.units import brief
from watchdog.kube.exec_plugin import API_GROUP, ExecPlugin
from watchdog.kube.failure import ConfigurationError
from watchdog.kube.text_file import as_utf8, read_file

_LARGEST_FILE: Final = 2**20  # of the kubeconfig, and of each file that it names
# With its aliases (*name) written out: those of 1 KiB of YAML can stand for terabytes.
_MOST_VALUES: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextChoice:
    """What a person chooses of kubeconfigs; the rest is as kubectl would choose it."""

    # None: those of the environment.
    file: Path | None = None
    # Empty: the current one.
    context: str = ""

    def files(self) -> tuple[Path, ...]:
        """The files to read as one; none if there are none, as in a pod. ConfigurationError.

        If no file of KUBECONFIG exists, kubectl goes on without: a mistyped name ends in a message about localhost.
        """
        found = self._found()
        if not found and _of_environment():
            missing = brief(", ".join(map(str, _of_environment())), 200)
            raise ConfigurationError(
                f"no file of KUBECONFIG exists: {missing}", "correct it, or give --kubeconfig FILE"
            )
        if not found and self.context:
            raise ConfigurationError(f"--context needs a kubeconfig, and {_usual()} does not exist", _GIVE_FILE)
        return found

    def name(self) -> str:
        """The names of these files as KUBECONFIG has them; empty if there are none."""
        return os.pathsep.join(map(str, self._found()))

    def _found(self) -> tuple[Path, ...]:
        """As ClientConfigLoadingRules in k8s.io/client-go/tools/clientcmd find them."""
        if self.file is not None:
            return (self.file,)
        return tuple(dict.fromkeys(each for each in _of_environment() or [_usual()] if each.exists()))

    def kubectl(self) -> str:
        """The beginning of a command line of kubectl that chooses the same."""
        chosen = [] if self.file is None else ["--kubeconfig", str(self.file)]
        return shlex.join(["kubectl", *chosen, *(["--context", self.context] if self.context else [])])


_GIVE_FILE: Final = "give --kubeconfig FILE, or set KUBECONFIG"


def _of_environment() -> list[Path]:
    return [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]


def _usual() -> Path:
    return Path.home() / ".kube" / "config"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Kubeconfig:
    """One context of a file or several: the fields of its cluster and user that the official client reads.

    Paths in it are absolute, and it contains secrets.
    """

    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    # Where the certificates come from, for messages.
    places: Mapping[str, str]
    # The user's entry, as messages name it.
    entry: str = ""
    # Set if the user has no token, and a plugin prints one.
    plugin: ExecPlugin | None = None

    def document(self, **more: str) -> dict[str, Any]:
        """The same as a kubeconfig of one context; `more` are further fields of the user, with `_` for `-`."""
        user = {**self.user, **{key.replace("_", "-"): value for key, value in more.items() if value}}
        return {
            "current-context": "current",
            "contexts": [{"name": "current", "context": {"cluster": "current", "user": "current"}}],
            "clusters": [{"name": "current", "cluster": dict(self.cluster)}],
            "users": [{"name": "current", "user": user}],
        }


def read_kubeconfig(files: Sequence[Path], context: str = "") -> Kubeconfig:
    """Read a context (empty: the current one) of files that are one together, and the files that it names.

    OSError if the only file can't be read, ConfigurationError.
    """
    merged = _Merged(files)
    name, by = (context, "--context") if context else (merged.current_context(), "current-context")
    chosen = merged.named("contexts", name, by).entry("context")
    cluster = merged.named("clusters", chosen.required("cluster"), chosen.place("cluster")).entry("cluster")
    places: dict[str, str] = {}
    fields = _cluster(cluster, places)
    account = chosen.text("user")
    if not account:
        return Kubeconfig(cluster=fields, user={}, places=places)
    user = merged.named("users", account, chosen.place("user")).entry("user")
    credentials = _user(user, places)
    plugin = _plugin(user, cluster, fields) if credentials.keys().isdisjoint({"token", "auth-provider"}) else None
    return Kubeconfig(cluster=fields, user=credentials, places=places, entry=user.where, plugin=plugin)


def _read(path: Path) -> Any:
    try:
        return _parse(as_utf8(read_file(path, _LARGEST_FILE)))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _read_one_of_several(path: Path) -> Any:
    """The same, with the file's name in each error."""
    try:
        return _read(path)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.reason}", error.remedy) from error
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}", _LET_READ) from error


_LET_READ: Final = "let this account read it, or take it out of KUBECONFIG"


def _parse(text: bytes) -> Any:
    """The data of a YAML document without merging or repeating more than a kubeconfig could need."""
    try:
        # Not the faster one of libyaml, which crashes the process on brackets by the ten thousand (libyaml 0.2.5).
        loader = SafeLoader(text.decode())
        document = loader.get_single_node()
        if document is None:
            return None
        if _count(document, {}) > _MOST_VALUES:
            raise ConfigurationError(f"it has more than {_MOST_VALUES} values, with its aliases (*name) written out")
        return loader.construct_document(document)
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ConfigurationError(f"the byte 0x{text[error.start]:02x} in line {line} is not UTF-8") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError(f"invalid YAML{place}: {error.problem}") from error
    except YAMLError as error:
        raise ConfigurationError("it is not YAML") from error
    except RecursionError as error:
        raise ConfigurationError("it is nested too deeply") from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:  # of the constructors of odd dates and tags
        raise ConfigurationError("a value in it is no date or number, though it looks like one: quote it") from error


def _count(node: Node, counted: dict[int, int]) -> int:
    """The number of values below a node, each alias counted as what it stands for; infinite if it contains itself."""
    known = counted.get(id(node))
    if known is not None:
        return known
    counted[id(node)] = _MOST_VALUES + 1  # until it is counted: what refers to itself has no end
    children: list[Node] = []
    if isinstance(node, SequenceNode):
        children = node.value
    elif isinstance(node, MappingNode):
        children = [child for pair in node.value for child in pair]
    counted[id(node)] = total = 1 + sum(_count(child, counted) for child in children)
    return total


class _Entry:
    """A value of a document, with the names that lead to it; `folder` is what relative paths in it start from.

    `origin` is what begins the places in a whole document, if it is one of several.
    """

    def __init__(self, value: Any, where: str, folder: Path, origin: str = "") -> None:
        self.value = value
        self.where = where
        self.folder = folder
        self.origin = origin

    def place(self, key: str) -> str:
        """The names that lead to a key of this mapping."""
        return f"{self.where}.{key}" if self.where else f"{self.origin}{key}"

    def refuse(self, key: str, why: str) -> NoReturn:
        """Report a key of this mapping."""
        raise ConfigurationError(f"{self.place(key)} {why}")

    def get(self, key: str) -> Any:
        """The value of a key; None if it is missing or empty."""
        if not isinstance(self.value, dict):
            what = f"{self.where} is" if self.where else f"{self.origin}it is"
            raise ConfigurationError(f"{what} {_kind(self.value)}, not a mapping of keys to values")
        value = self.value.get(key)
        return None if value == "" else value

    def entry(self, key: str) -> "_Entry":
        """A mapping below this one, which may be empty but not missing."""
        value = self.get(key)
        if value is None:
            self.refuse(key, "is missing")
        return _Entry(value, self.place(key), self.folder)

    def items(self, key: str) -> Iterator["_Entry"]:
        """The entries of a list, by number; none if it is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            self.refuse(key, f"is {_kind(value)}, not a list")
        for number, item in enumerate(value or ()):
            yield _Entry(item, f"{self.place(key)}[{number}]", self.folder)

    def text(self, key: str) -> str:
        """A string; empty if it is missing."""
        value = self.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.refuse(key, f"is {_kind(value)}, not a string" + (": quote it" if not _is_nested(value) else ""))
        if "\0" in value:
            self.refuse(key, "contains a NUL character")
        return value

    def required(self, key: str) -> str:
        """A string that must not be missing."""
        value = self.text(key)
        if not value:
            self.refuse(key, "is missing")
        return value

    def flag(self, key: str) -> bool:
        """A truth value; False if it is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            self.refuse(key, f"is {_kind(value)}: write true or false, without quotes")
        return bool(value)

    def file(self, key: str) -> Path | None:
        """The file that a key names, which can be read; None if the key is missing."""
        name = self.text(key)
        if not name:
            return None
        path = self.folder / name
        try:
            read_file(path, _LARGEST_FILE)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            remedy = "check that it exists, and that this account may read it"
            raise ConfigurationError(f"{self.place(key)} ({path}) can't be read: {why}", remedy) from error
        return path


class _Merged:
    """The documents of files as one: the first that has a value or an entry wins, and others don't add to an entry.

    So does kubectl:
    https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        if len(files) == 1:
            documents = [_Entry(_read(files[0]), "", files[0].absolute().parent)]
        else:
            documents = [_Entry(_read_one_of_several(each), "", each.absolute().parent, f"{each}: ") for each in files]
        self._documents = [each for each in documents if each.value is not None]
        if not self._documents:
            raise ConfigurationError("it is empty" if len(files) == 1 else "all of them are empty")

    def current_context(self) -> str:
        """The name of the current context."""
        found = next((name for each in self._documents if (name := each.text("current-context"))), "")
        return found or self._documents[0].required("current-context")

    def named(self, key: str, name: str, by: str) -> _Entry:
        """The entry with a name in a list; `by` is the key or the option that has the name."""
        shown = repr(brief(name))
        for document in self._documents:
            found = [item for item in document.items(key) if item.get("name") == name]
            if len(found) > 1:
                raise ConfigurationError(f"{document.place(key)} has {len(found)} entries named {shown}")
            if found:
                return _Entry(found[0].value, f"{document.place(key)}[name={brief(name)}]", document.folder)
        items = (item for each in self._documents for item in each.items(key) if _has_name(item))
        names = ", ".join(dict.fromkeys(repr(brief(item.value["name"])) for item in items))
        raise ConfigurationError(f"{by} is {shown}, which is not in {key} ({brief(names, 200) or 'empty'})")


def _has_name(item: _Entry) -> bool:
    return isinstance(item.value, dict) and isinstance(item.value.get("name"), str)


def _is_nested(value: object) -> bool:
    return isinstance(value, dict | list)


def _kind(value: object) -> str:
    kinds = ((dict, "a mapping"), (list, "a list"), (bool, "a truth value"), (int | float, "a number"), (str, "text"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "empty" if value is None else "a date")


def _cluster(entry: _Entry, places: dict[str, str]) -> dict[str, Any]:
    server = entry.required("server").rstrip("/")
    _check_url(entry, "server", server, ("https", "http"), "https://10.0.0.1:6443")
    fields: dict[str, Any] = {"server": server}
    for key in ("proxy-url", "tls-server-name"):
        if text := entry.text(key):
            fields[key] = text
    name = fields.get("tls-server-name", "")
    if name and not re.fullmatch(r"[A-Za-z0-9_:]([A-Za-z0-9._:-]{0,252})", name):
        entry.refuse("tls-server-name", "is not the name of a host")
    if entry.flag("insecure-skip-tls-verify"):
        fields["insecure-skip-tls-verify"] = True
    return fields | _pem(entry, "certificate-authority", places)


def _check_url(entry: _Entry, key: str, url: str, schemes: tuple[str, ...], example: str) -> None:
    """Check that a URL leads to a host; the official client would take one without a scheme for a host without TLS."""
    wanted = f"write it like {example}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        entry.refuse(key, f"is not a URL ({error}): {wanted}")
    if parts.scheme not in schemes or not url.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        entry.refuse(key, f"does not begin with https://: {wanted}")
    if parts.username is not None or parts.password is not None:
        entry.refuse(key, "contains a user name: remove it, and give the user a token or a certificate")
    if (
        not host
        or port == 0
        or parts.query
        or parts.fragment
        or not url.isascii()
        or not url.isprintable()
        or " " in url
        or "\\" in url
    ):
        entry.refuse(key, f"is not a URL: {wanted}")


def _pem(entry: _Entry, key: str, places: dict[str, str]) -> dict[str, str]:
    """The field with PEM as the official client gets it, in the file or in the kubeconfig itself; empty if missing.

    `places` gets where it is, for messages about its content.
    """
    data = entry.text(f"{key}-data")
    if data:
        places[key] = place = entry.place(f"{key}-data")
        try:
            base64.b64decode("".join(data.split()), validate=True)
        except ValueError as error:
            raise ConfigurationError(f"{place} is not base64: encode the PEM file with `base64 -w0`") from error
        return {f"{key}-data": data}
    path = entry.file(key)
    if path is None:
        return {}
    places[key] = f"{entry.place(key)} ({path})"
    return {key: str(path)}


def _user(entry: _Entry, places: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {**_pem(entry, "client-certificate", places), **_pem(entry, "client-key", places)}
    for key in ("username", "password"):
        if text := entry.text(key):
            fields[key] = text
    if token := entry.text("token") or _token_of_file(entry):
        fields["token"] = token
    if entry.get("auth-provider") is not None:
        provider = entry.entry("auth-provider")
        if provider.required("name") != "oidc":
            entry.refuse(
                "auth-provider",
                f"is {brief(provider.required('name'))!r}, which Kubernetes has removed in favor of `exec` plugins",
            )
        fields["auth-provider"] = provider.value
    return fields


def _token_of_file(entry: _Entry) -> str:
    path = entry.file("tokenFile")
    if path is None:
        return ""
    place = f"{entry.place('tokenFile')} ({path})"
    try:
        token = as_utf8(read_file(path, _LARGEST_FILE)).decode().strip()
    except ValueError as error:
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigurationError(f"{place} can't be read: {why}") from error
    if not token:
        raise ConfigurationError(f"{place} is empty", "write the token to it, or correct tokenFile")
    return token


def _plugin(entry: _Entry, cluster: _Entry, fields: Mapping[str, Any]) -> ExecPlugin | None:
    if entry.get("exec") is None:
        return None
    plugin = entry.entry("exec")
    version = plugin.required("apiVersion")
    if not version.startswith(API_GROUP):
        plugin.refuse("apiVersion", f"is {brief(version)!r}, not {API_GROUP}v1 or {API_GROUP}v1beta1")
    if plugin.text("interactiveMode") == "Always":
        plugin.refuse("interactiveMode", "is Always: nobody can answer the plugin here; use credentials without input")
    arguments = plugin.get("args") or []
    if not isinstance(arguments, list) or not all(isinstance(each, str) and "\0" not in each for each in arguments):
        plugin.refuse("args", "is not a list of strings: quote numbers and truth values")
    return ExecPlugin(
        command=plugin.required("command"),
        api_version=version,
        folder=entry.folder,
        arguments=tuple(arguments),
        variables={each.required("name"): each.text("value") for each in plugin.items("env")},
        cluster=_shown_to_plugin(cluster, fields) if plugin.flag("provideClusterInfo") else None,
        install_hint=plugin.text("installHint"),
    )


def _shown_to_plugin(cluster: _Entry, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`spec.cluster` of an ExecCredential: the cluster, with its certificates and the plugin's own configuration."""
    shown = dict(fields)
    if path := shown.pop("certificate-authority", None):
        shown["certificate-authority-data"] = base64.b64encode(read_file(Path(path), _LARGEST_FILE)).decode()
    for extension in cluster.items("extensions"):
        if extension.get("name") == f"{API_GROUP}exec":
            shown["config"] = extension.get("extension")
    return shown


def check_certificates(
    authority: str | None, certificate: str | None, key: str | None, places: Mapping[str, str]
) -> None:
    """Check that the transport can use these files; ConfigurationError, in which `places` says what each one is.

    OpenSSL's errors name no file, and for an encrypted key it would ask at the terminal.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if authority:
            place = places.get("certificate-authority", authority)
            context.load_verify_locations(authority)
        if certificate:
            place = _check_pair(certificate, key, places)
            context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        if error.reason == "NO_CERTIFICATE_OR_CRL_FOUND":
            raise ConfigurationError(f"{place} contains no certificate in PEM form") from error
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(f"{place} and its key do not belong together") from error
        reason = "not PEM" if error.reason is None else error.reason.replace("_", " ").lower()
        raise ConfigurationError(f"{place} can't be used: {reason}") from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{place} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _check_pair(certificate: str, key: str | None, places: Mapping[str, str]) -> str:
    """Check the form of a client certificate and its key, which may be in the same file; the name of the first."""
    place = places.get("client-certificate", certificate)
    of_key = places.get("client-key", key or "")
    if b"-----BEGIN CERTIFICATE-----" not in read_file(Path(certificate), _LARGEST_FILE):
        raise ConfigurationError(f"{place} contains no certificate in PEM form")
    content = read_file(Path(key or certificate), _LARGEST_FILE)
    if b"PRIVATE KEY-----" not in content:
        raise ConfigurationError(
            f"{of_key} contains no private key in PEM form" if key else f"{place} has no client-key"
        )
    if b"ENCRYPTED" in content:
        raise ConfigurationError(f"{of_key or place} is encrypted: nobody can type its passphrase here")
    return place
