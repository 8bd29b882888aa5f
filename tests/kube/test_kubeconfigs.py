"""A table of odd kubeconfigs: each is used, or refused with its place, the reason and what to do."""

import base64
import copy
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kube import faulty
from tests.node.support import wait_until
from tests.rig.cluster.certificates import openssl
from watchdog.kube.client import Api
from watchdog.kube.credentials import load_access
from watchdog.kube.exec_plugin import ExecPlugin, PluginError, run_plugin
from watchdog.kube.failure import ApiConfigError, ApiError
from watchdog.kube.kubeconfig import ContextChoice

SECRET: Final = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.secretsecretsecretsecretsecretsecret"
UNTIL: Final = "; correct it until `kubectl --kubeconfig {path} get --raw /version` works"
Document = dict[str, Any]


def document(user: object = None, **cluster: object) -> Document:
    """A kubeconfig with one context, with a token unless a user is given; `cluster` has its keys with _ for -."""
    keys = {key.replace("_", "-"): value for key, value in cluster.items()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **keys}}],
        "users": [{"name": "u", "user": {"token": SECRET} if user is None else user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def reported(path: Path) -> str:
    """Why a request with this file is not made; no secret is in it, and no line break."""
    with Api(path) as api, pytest.raises(ApiConfigError) as caught:
        api.call("GET", "/version")
    sentence = str(caught.value)
    assert "secret" not in sentence
    assert sentence.isprintable()
    assert sentence.startswith("the API server can't be used: ")
    return sentence.removeprefix("the API server can't be used: ")


def refused(path: Path) -> str:
    """Why the content of this file can't be used."""
    sentence = reported(path)
    start, end = f"the kubeconfig {path} is not usable: ", UNTIL.format(path=path)
    assert sentence.startswith(start)
    return sentence.removeprefix(start).removesuffix(end)


BOMB: Final = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefghijklmnopqrs", "bcdefghijklmnopqrst", strict=True)
)
MERGED: Final = BOMB.replace("[x, x]", "{x: y}").replace("[", "{<<: [").replace("]", "]}")
FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "a comment": (b"# nothing\n", "it is empty"),
    "no YAML": (b"{{{{", "invalid YAML in line 1, column 5: expected the node content, but found '<stream end>'"),
    "tabs": (b"a:\n\tb: 1", "invalid YAML in line 2, column 1: found character '\\t' that cannot start any token"),
    "NUL bytes": (b"\0\1", "it has NUL bytes, as UTF-16 without a byte order mark does; write it as UTF-8"),
    "NUL bytes later": (b"current-context: \0", "it is not YAML"),
    "Latin-1": (b"a: 1\nb: \xe4", "the byte 0xe4 in line 2 is not UTF-8"),
    "UTF-16, broken": (b"\xff\xfea", "its byte order mark says UTF-16, but it is not; write it as UTF-8"),
    "a list": (b"[1]", "it is a list, not a mapping of keys to values"),
    "a text": (b"kubeconfig", "it is text, not a mapping of keys to values"),
    "a number": (b"1", "it is a number, not a mapping of keys to values"),
    "a date": (b"2024-01-01", "it is a date, not a mapping of keys to values"),
    "two documents": (b"a: 1\n---\nb: 2\n", "invalid YAML in line 2, column 1: but found another document"),
    "no such date": (b"a: 2024-99-99", "a value in it is no date or number, though it looks like one: quote it"),
    "a tag": (b"a: !!bool maybe", "a value in it is no date or number, though it looks like one: quote it"),
    "code": (
        b"a: !!python/object:os.system x",
        (
            "invalid YAML in line 1, column 4: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object:os.system'"
        ),
    ),
    "deep": (b"[" * 2000, "it is nested too deeply"),
    "aliases": (BOMB.encode(), "it has more than 100000 values, with its aliases (*name) written out"),
    "merged aliases": (MERGED.encode(), "it has more than 100000 values, with its aliases (*name) written out"),
    "an endless alias": (b"a: &a [*a]", "it has more than 100000 values, with its aliases (*name) written out"),
    "large": (b"#" * (2**20 + 1), "it is larger than 1024 KiB"),
    "no contexts": (b"kind: Config", "current-context is missing"),
    "an empty context": (b"current-context: ''", "current-context is missing"),
    "a context by number": (b"current-context: 1", "current-context is a number, not a string: quote it"),
    "no such context": (
        b"current-context: x\ncontexts: [{name: y}, 3]",
        "contexts[1] is a number, not a mapping of keys to values",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, name: str) -> None:
    """Whatever is in a file, the reason names it and what is wrong, within a second or two."""
    content, expected = FILES[name]
    path = tmp_path / "config"
    path.write_bytes(content)
    assert refused(path) == expected


def _drop(*path: str | int) -> Callable[[Document], object]:
    def change(found: Document) -> None:
        inner: Any = found
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]

    return change


def _set(value: object, *path: str | int) -> Callable[[Document], object]:
    def change(found: Document) -> None:
        inner: Any = found
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


CLUSTER, USER, CONTEXT = ("clusters", 0, "cluster"), ("users", 0, "user"), ("contexts", 0, "context")
PEM: Final = base64.b64encode(b"no PEM").decode()
URL: Final = "write it like https://10.0.0.1:6443"
ENTRIES: dict[str, tuple[Callable[[Document], object], str]] = {
    "another context": (_set("y", "current-context"), "current-context is 'y', which is not in contexts ('x')"),
    "contexts missing": (_drop("contexts"), "current-context is 'x', which is not in contexts (empty)"),
    "contexts a mapping": (_set({}, "contexts"), "contexts is a mapping, not a list"),
    "two of a name": (lambda found: found["users"].append(found["users"][0]), "users has 2 entries named 'u'"),
    "context without content": (_drop(*CONTEXT), "contexts[name=x].context is missing"),
    "context a text": (_set("c", *CONTEXT), "contexts[name=x].context is text, not a mapping of keys to values"),
    "no cluster": (_drop(*CONTEXT, "cluster"), "contexts[name=x].context.cluster is missing"),
    "another cluster": (
        _set("d", *CONTEXT, "cluster"),
        "contexts[name=x].context.cluster is 'd', which is not in clusters ('c')",
    ),
    "another user": (_set("v", *CONTEXT, "user"), "contexts[name=x].context.user is 'v', which is not in users ('u')"),
    "users missing": (_drop("users"), "contexts[name=x].context.user is 'u', which is not in users (empty)"),
    "user not indented": (_set([{"name": "u", "token": SECRET}], "users"), "users[name=u].user is missing"),
    "user a token": (_set(SECRET, *USER), "users[name=u].user is text, not a mapping of keys to values"),
    "no server": (_drop(*CLUSTER, "server"), "clusters[name=c].cluster.server is missing"),
    "server a number": (
        _set(6443, *CLUSTER, "server"),
        "clusters[name=c].cluster.server is a number, not a string: quote it",
    ),
    "server without a scheme": (
        _set("10.0.0.1:6443", *CLUSTER, "server"),
        f"clusters[name=c].cluster.server does not begin with https://: {URL}",
    ),
    "server with a space": (
        _set("https://10.0.0 .1", *CLUSTER, "server"),
        f"clusters[name=c].cluster.server is not a URL: {URL}",
    ),
    "server without a host": (
        _set("https://:6443", *CLUSTER, "server"),
        f"clusters[name=c].cluster.server is not a URL: {URL}",
    ),
    "server with an odd port": (
        _set("https://a:port", *CLUSTER, "server"),
        f"clusters[name=c].cluster.server is not a URL (Port could not be cast to integer value as 'port'): {URL}",
    ),
    "server with half an address": (
        _set("https://[::1", *CLUSTER, "server"),
        f"clusters[name=c].cluster.server is not a URL (Invalid IPv6 URL): {URL}",
    ),
    "server with a password": (
        _set("https://me:secret@a", *CLUSTER, "server"),
        "clusters[name=c].cluster.server contains a user name: remove it, and give the user a token or a certificate",
    ),
    "a TLS name with a space": (
        _set("a b", *CLUSTER, "tls-server-name"),
        "clusters[name=c].cluster.tls-server-name is not the name of a host",
    ),
    "proxy a list": (_set(["x"], *CLUSTER, "proxy-url"), "clusters[name=c].cluster.proxy-url is a list, not a string"),
    "no check of certificates, quoted": (
        _set("false", *CLUSTER, "insecure-skip-tls-verify"),
        "clusters[name=c].cluster.insecure-skip-tls-verify is text: write true or false, without quotes",
    ),
    "authority not base64": (
        _set("%%%", *CLUSTER, "certificate-authority-data"),
        "clusters[name=c].cluster.certificate-authority-data is not base64: encode the PEM file with `base64 -w0`",
    ),
    "authority not PEM": (
        _set(PEM, *CLUSTER, "certificate-authority-data"),
        "clusters[name=c].cluster.certificate-authority-data contains no certificate in PEM form",
    ),
    "authority cut off": (
        _set(base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n").decode(), *CLUSTER, "certificate-authority-data"),
        "clusters[name=c].cluster.certificate-authority-data can't be used: not PEM",
    ),
    "client certificate not PEM": (
        _set({"client-certificate-data": PEM, "client-key-data": PEM}, *USER),
        "users[name=u].user.client-certificate-data contains no certificate in PEM form",
    ),
    "token a number": (_set(5, *USER, "token"), "users[name=u].user.token is a number, not a string: quote it"),
    "token a list": (_set([SECRET], *USER, "token"), "users[name=u].user.token is a list, not a string"),
    "token with a NUL": (_set(f"{SECRET}\0", *USER, "token"), "users[name=u].user.token contains a NUL character"),
    "an auth-provider of old": (
        _set({"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}}, *USER),
        "users[name=u].user.auth-provider is 'gcp', which Kubernetes has removed in favor of `exec` plugins",
    ),
    "an auth-provider without a name": (
        _set({"auth-provider": {}}, *USER),
        "users[name=u].user.auth-provider.name is missing",
    ),
    "plugin without a command": (
        _set({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, *USER),
        "users[name=u].user.exec.command is missing",
    ),
    "plugin of another version": (
        _set({"exec": {"apiVersion": "v1", "command": "x"}}, *USER),
        (
            "users[name=u].user.exec.apiVersion is 'v1', not client.authentication.k8s.io/v1 or "
            "client.authentication.k8s.io/v1beta1"
        ),
    ),
    "plugin that asks": (
        _set(
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "Always"}},
            *USER,
        ),
        (
            "users[name=u].user.exec.interactiveMode is Always: nobody can answer the plugin here; use credentials "
            "without input"
        ),
    ),
    "plugin with numbers": (
        _set({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "args": [1]}}, *USER),
        "users[name=u].user.exec.args is not a list of strings: quote numbers and truth values",
    ),
    "plugin with odd variables": (
        _set(
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "env": [{"value": "y"}]}}, *USER
        ),
        "users[name=u].user.exec.env[0].name is missing",
    ),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_that_can_not_be_used(tmp_path: Path, name: str) -> None:
    """The reason names the entry, and quotes no secret, as the official client does."""
    change, expected = ENTRIES[name]
    change(found := document())
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(found))
    assert refused(path) == expected


def _write(path: Path, found: Document) -> Path:
    path.write_text(json.dumps(found))
    return path


@pytest.mark.parametrize("key", ["certificate-authority", "client-certificate", "client-key", "tokenFile"])
def test_a_file_that_is_missing(tmp_path: Path, key: str) -> None:
    """A file that the kubeconfig names is reported with its entry and its path, which is relative to the kubeconfig."""
    of_cluster = key == "certificate-authority"
    place = f"{'clusters[name=c].cluster' if of_cluster else 'users[name=u].user'}.{key} ({tmp_path / 'gone'})"
    found = document(certificate_authority="gone") if of_cluster else document({key: "gone"})
    remedy = "; check that it exists, and that this account may read it"
    path = _write(tmp_path / "config", found)
    assert refused(path) == f"{place} can't be read: No such file or directory{remedy}"
    (tmp_path / "gone").mkdir()
    assert refused(path) == f"{place} can't be read: Is a directory{remedy}"
    (tmp_path / "gone").rmdir()
    os.mkfifo(tmp_path / "gone")
    assert refused(path) == f"{place} can't be read: it is not a regular file{remedy}"


def test_an_unreadable_kubeconfig(tmp_path: Path) -> None:
    """A pipe is refused at once, where opening it would wait for a writer."""
    path = tmp_path / "config"
    os.mkfifo(path)
    assert refused(path) == "it is not a regular file"


def test_client_certificates(tmp_path: Path) -> None:
    """A key that is missing, encrypted or of another certificate is named; OpenSSL would ask for a passphrase."""
    pair, other = faulty.authority().client("one", "a"), faulty.authority().client("two", "a")
    path = tmp_path / "config"

    def reason(certificate: object, key: object) -> str:
        user = {"client-certificate": str(certificate), **({"client-key": str(key)} if key else {})}
        return refused(_write(path, document(user)))

    encrypted = tmp_path / "encrypted.key"
    openssl("pkey", "-in", str(pair.key), "-aes256", "-passout", "pass:secret", "-out", str(encrypted))
    of = "users[name=u].user"
    assert reason(pair.certificate, None) == f"{of}.client-certificate ({pair.certificate}) has no client-key"
    assert (
        reason(pair.certificate, encrypted)
        == f"{of}.client-key ({encrypted}) is encrypted: nobody can type its passphrase here"
    )
    assert (
        reason(pair.certificate, other.key)
        == f"{of}.client-certificate ({pair.certificate}) and its key do not belong together"
    )
    assert (
        reason(pair.certificate, pair.certificate)
        == f"{of}.client-key ({pair.certificate}) contains no private key in PEM form"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", " is empty; write the token to it, or correct tokenFile"),
        (b" \n", " is empty; write the token to it, or correct tokenFile"),
        (b"\xffsecret", " can't be read: it is not text"),
        (b"s\0e\0c\0", " can't be read: it has NUL bytes, as UTF-16 without a byte order mark does; write it as UTF-8"),
        (b"x" * (2**20 + 1), " can't be read: it is larger than 1024 KiB"),
    ],
)
def test_an_odd_token_file(tmp_path: Path, content: bytes, expected: str) -> None:
    """The reason names the token's file."""
    (tmp_path / "token").write_bytes(content)
    path = _write(tmp_path / "config", document({"tokenFile": "token"}))
    where = f"users[name=u].user.tokenFile ({tmp_path / 'token'})"
    assert refused(path).startswith(f"{where}{expected}".removesuffix("; check"))


def test_encodings(tmp_path: Path) -> None:
    """Files as Windows writes them are read: with a byte order mark, as UTF-16, the token's as well."""
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        (tmp_path / "token").write_bytes(f"abc{os.linesep}".encode(encoding))
        path = tmp_path / "config"
        path.write_bytes(yaml.safe_dump(document({"tokenFile": "token"})).encode(encoding))
        assert load_access(path).configuration.api_key["BearerToken"] == "Bearer abc"


def test_other_entries_do_not_matter(tmp_path: Path) -> None:
    """Only the current context is read; a path in the name of the file splits nothing, and aliases are allowed."""
    folder = tmp_path / "a:b"
    folder.mkdir()
    text = yaml.safe_dump(document({"token": "t"}))
    text += "preferences: &a {}\nextensions: [*a, *a]\n"
    path = folder / "config"
    path.write_text(text.replace("clusters:", "clusters:\n- {name: other, cluster: 5}"))
    assert load_access(path).configuration.api_key["BearerToken"] == "Bearer t"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a person who has set nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / ".kube").mkdir()
    return tmp_path


def one_context(path: Path, name: str, token: str, **more: object) -> Path:
    """A file with one context, whose cluster and user have the same name; `more` are further keys of the file."""
    found = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{token}.example"}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return _write(path, found | more)


def token_of(choice: ContextChoice) -> str:
    """The token by which the chosen context is used."""
    return str(load_access(choice).configuration.api_key["BearerToken"]).removeprefix("Bearer ")


def test_the_files_are_those_that_kubectl_takes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option alone, else what KUBECONFIG names and there is, else the usual place, if it is there."""
    usual, other = home / ".kube" / "config", home / "other"
    assert ContextChoice().files() == ()
    usual.touch()
    assert ContextChoice().files() == (usual,)
    monkeypatch.setenv("KUBECONFIG", f"{home}/none::{other}:{usual}:{other}")
    other.touch()
    assert ContextChoice().files() == (other, usual)
    assert ContextChoice(file=home / "given").files() == (home / "given",)


def test_several_files_are_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several files the first that names a context, a cluster or a user wins, and paths start at their own file."""
    (home / "b").mkdir()
    (home / "b" / "token").write_text("of-a-file")
    first = one_context(home / "first", "x", "one")
    (home / "empty").touch()
    second = one_context(home / "b" / "config", "x", "two", **{"current-context": "y"})
    both = yaml.safe_load(second.read_text())
    both["users"].append({"name": "y", "user": {"tokenFile": "token"}})
    both["contexts"].append({"name": "y", "context": {"cluster": "x", "user": "y"}})
    monkeypatch.setenv("KUBECONFIG", f"{first}:{home}/empty:{_write(second, both)}")
    assert token_of(ContextChoice()) == "of-a-file"
    assert token_of(ContextChoice(context="x")) == "one"
    assert load_access(ContextChoice()).configuration.host == "https://one.example"


@pytest.mark.cluster
def test_kubectl_merges_the_same(kubectl: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real kubectl takes the same server, user and context of several files, whatever their order."""
    names = [one_context(home / "a", "x", "one"), one_context(home / "b", "x", "two", **{"current-context": "z"})]
    names += [one_context(home / "c", "z", "three"), _write(home / "d", {"current-context": "x", "contexts": []})]
    for order in permutations(names):
        monkeypatch.setenv("KUBECONFIG", ":".join(map(str, order)))
        command = [str(kubectl), "config", "view", "--minify", "--raw", "-o", "json"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert token_of(ContextChoice()) == found["users"][0]["user"]["token"]
        assert load_access(ContextChoice()).configuration.host == found["clusters"][0]["cluster"]["server"]


def unusable(choice: ContextChoice) -> str:
    """Why no request is made with what a person chose."""
    with pytest.raises(ApiConfigError) as caught:
        load_access(choice)
    return str(caught.value).removeprefix("the API server can't be used: ")


def test_a_context_that_there_is_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped context names those of all files, and the command of kubectl that must work."""
    path = one_context(home / "a", "x", "one")
    unknown = "is not usable: --context is 'prod 1', which is not in contexts ('x'"
    checked = "; correct it until `kubectl{} --context 'prod 1' get --raw /version` works"
    assert unusable(ContextChoice(file=path, context="prod 1")) == (
        f"the kubeconfig {path} {unknown}){checked.format(f' --kubeconfig {path}')}"
    )
    other = one_context(home / "b", "y", "two")
    monkeypatch.setenv("KUBECONFIG", f"{path}:{other}")
    text = unusable(ContextChoice(context="prod 1"))
    assert text == f"the kubeconfig {path}:{other} {unknown}, 'y'){checked.format('')}"


def test_a_mistake_in_one_of_several_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is named in which something is wrong, whatever it is."""
    path, other = home / "a", one_context(home / "b", "x", "one", **{"current-context": "x"})
    monkeypatch.setenv("KUBECONFIG", f"{path}:{other}")
    start = f"the kubeconfig {path}:{other} is not usable: {path}"
    for text, expected in (
        ("{", ": invalid YAML in line 1"),
        ("[1]", ": it is a list"),
        ("{contexts: 1}", ": contexts is a number"),
        (
            "{users: [{name: x, user: {tokenFile: none}}]}",
            f": users[name=x].user.tokenFile ({home}/none) can't be read",
        ),
    ):
        path.write_text(text)
        assert unusable(ContextChoice()).startswith(start + expected)
    path.unlink()
    path.mkdir()
    assert unusable(ContextChoice()).startswith(f"{start} can't be read: Is a directory; ")


def test_a_choice_that_leads_to_no_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped KUBECONFIG and a context without a file are not taken for a pod's service account."""
    assert unusable(ContextChoice(context="x")).startswith(
        f"--context needs a kubeconfig, and {home}/.kube/config does"
    )
    monkeypatch.setenv("KUBECONFIG", f"{home}/none:{home}/nor-this")
    one_context(home / ".kube" / "config", "x", "one", **{"current-context": "x"})
    assert unusable(ContextChoice()).startswith(f"no file of KUBECONFIG exists: {home}/none, {home}/nor-this; ")


V1: Final = "client.authentication.k8s.io/v1"


def credential(**status: object) -> str:
    """What a plugin prints."""
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin as a shell script, and how it is described."""

    script: str = ""
    reported: str
    entry: dict[str, object] = field(default_factory=dict)


HAND: Final = "; run it by hand with the arguments and variables of its entry, as the user that this runs as"
CHECK: Final = "; check that it is a credential plugin of Kubernetes, and its arguments"
START: Final = "; install it where this runs, or name it by its full path"
PLUGINS: dict[str, Plugin] = {
    "missing": Plugin(entry={"command": "/no/such"}, reported=f"can't be started: No such file or directory{START}"),
    "missing, with a hint": Plugin(
        entry={"command": "/no/such", "installHint": "\nget it at example.com\nmore"},
        reported=f"can't be started: No such file or directory{START}: get it at example.com",
    ),
    "a directory": Plugin(entry={"command": "/tmp"}, reported=f"can't be started: Permission denied{START}"),
    "fails": Plugin(
        script="echo; echo 'no login; log in' >&2; echo more >&2; exit 3",
        reported=f"exited with 3: no login; log in{HAND}",
    ),
    "fails silently": Plugin(script="exit 1", reported=f"exited with 1{HAND}"),
    "fails with its token": Plugin(
        script=f"printf 'bad token: {SECRET}\\033[2J\\n' >&2; exit 1",
        reported=f"exited with 1: bad token: ***.***?[2J{HAND}",
    ),
    "crashes": Plugin(script="kill -SEGV $$", reported=f"was ended by signal 11{HAND}"),
    "prints nothing": Plugin(script=":", reported=f"prints nothing{CHECK}"),
    "prints a token": Plugin(script=f"echo {SECRET}", reported=f"prints no JSON{CHECK}"),
    "prints brackets": Plugin(script="head -c 100000 /dev/zero | tr '\\0' '['", reported=f"prints no JSON{CHECK}"),
    "prints a list": Plugin(script="echo '[]'", reported=f"prints JSON that is not an ExecCredential{CHECK}"),
    "prints another kind": Plugin(
        script='echo \'{"kind": "Pod"}\'', reported=f"prints JSON that is not an ExecCredential{CHECK}"
    ),
    "of another version": Plugin(
        script=f"""echo '{credential(token="t").replace("/v1", "/v1beta1")}'""",
        reported="prints an ExecCredential of version client.authentication.k8s.io/v1beta1, not "
        "client.authentication.k8s.io/v1; write the version that the plugin prints as apiVersion of `exec`, or update "
        f"the plugin{HAND}",
    ),
    "without a status": Plugin(
        script=f"""echo '{json.dumps({"apiVersion": V1, "kind": "ExecCredential"})}'""",
        reported=f"prints an ExecCredential without a status, so without credentials{CHECK}",
    ),
    "with an empty status": Plugin(
        script=f"echo '{credential()}'", reported=f"prints neither a token nor a client certificate{CHECK}"
    ),
    "with a number": Plugin(
        script=f"echo '{credential(token=5)}'", reported=f"prints an ExecCredential whose token is not a string{CHECK}"
    ),
    "with half a pair": Plugin(
        script=f"echo '{credential(clientCertificateData='x')}'",
        reported=f"prints a client certificate without its key, or a key alone{CHECK}",
    ),
    "with an odd time": Plugin(
        script=f"echo '{credential(token='t', expirationTimestamp='soon')}'",
        reported=f"prints an expirationTimestamp that is not a time{CHECK}",
    ),
    "prints without end": Plugin(script="yes", reported=f"prints more than 1 MiB{CHECK}"),
}


def _with_plugin(path: Path, plugin: Plugin) -> Path:
    script = path.with_name("plugin")
    script.write_text(f"#!/bin/sh\n{plugin.script}\n")
    script.chmod(0o700)
    return _write(path, document({"exec": {"apiVersion": V1, "command": str(script), **plugin.entry}}))


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_that_fails(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The reason names the plugin and how it failed, instead of an expired token; nothing is printed or logged."""
    plugin = PLUGINS[name]
    path = _with_plugin(tmp_path / "config", plugin)
    command = plugin.entry.get("command", str(tmp_path / "plugin"))
    shown = command if len(str(command)) <= 60 else f"{str(command)[:57]}..."
    start = f"the kubeconfig {path} is not usable: the exec plugin {shown!r} of users[name=u].user "
    assert reported(path) == f"{start}{plugin.reported}"
    assert capfd.readouterr() == ("", "")


def test_a_plugin_that_hangs(tmp_path: Path) -> None:
    """It is ended after its time, with what it has started; one that leaves something behind is not waited for."""
    pid = tmp_path / "pid"
    for script in (f"sleep 600 & echo $! > {pid}; wait", f"sleep 600 & echo $! > {pid}; echo done"):
        plugin = ExecPlugin(command="sh", arguments=("-c", script), api_version=V1, folder=tmp_path)
        began_s = time.monotonic()
        with pytest.raises(PluginError) as caught:
            run_plugin(plugin, longest_s=0.5)
        assert caught.value.cause == "did not finish within 0.5 s"
        assert time.monotonic() - began_s < 20
        wait_until(lambda: _has_ended(int(pid.read_text())))


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: it ended between open and read
        return True


def test_what_a_plugin_gets(tmp_path: Path) -> None:
    """It gets the arguments and variables of its entry, the cluster if it wants that, and no terminal."""
    ca = faulty.authority().certificate
    script = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo "$A $1" > {tmp_path}/given; cat; echo "$2"'
    plugin = {
        "apiVersion": V1,
        "command": "sh",
        "args": ["-c", script, "sh", "b", credential(token="t")],
        "env": [{"name": "A", "value": "a"}],
        "provideClusterInfo": True,
    }
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    found = document({"exec": plugin}, certificate_authority=str(ca), extensions=[extension])
    assert load_access(_write(tmp_path / "config", found)).configuration.api_key["BearerToken"] == "Bearer t"
    assert (tmp_path / "given").read_text() == "a b\n"
    info = json.loads((tmp_path / "info").read_text())
    data = base64.b64encode(ca.read_bytes()).decode()
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": data, "config": {"audience": "x"}}
    assert info == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False, "cluster": cluster}}


def test_a_plugin_that_prints_a_certificate(tmp_path: Path) -> None:
    """A client certificate from a plugin is used, and a wrong one named."""
    pair = faulty.authority().client("one", "a")
    good = credential(clientCertificateData=pair.certificate.read_text(), clientKeyData=pair.key.read_text())
    (tmp_path / "out").write_text(good)
    path = _with_plugin(tmp_path / "config", Plugin(script=f"cat {tmp_path}/out", reported=""))
    assert load_access(path).configuration.cert_file
    (tmp_path / "out").write_text(credential(clientCertificateData="x", clientKeyData="y"))
    assert "contains no certificate in PEM form" in refused(path)


def _utc(in_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + in_s))


def test_credentials_of_a_plugin_expire(tmp_path: Path) -> None:
    """Credentials are asked for again once they expire, and not before."""
    runs, expiry = tmp_path / "runs", tmp_path / "expiry"
    printed = credential(token="t", expirationTimestamp="EXPIRY")
    script = f"echo x >> {runs}; sed s/EXPIRY/$(cat {expiry})/ {tmp_path / 'printed'}"
    (tmp_path / "printed").write_text(printed)
    with Api(_with_plugin(tmp_path / "config", Plugin(script=script, reported=""))) as api:
        expiry.write_text(_utc(3.0))
        api.credentials()
        api.credentials()
        assert runs.read_text() == "x\n"
        expiry.write_text(_utc(3600.0))
        wait_until(lambda: api.credentials().kind == "token" and runs.read_text() == "x\nx\n")


def test_credentials_that_come_expired(tmp_path: Path) -> None:
    """The reason says since when, and what to do."""
    script = f"echo '{credential(token='t', expirationTimestamp=_utc(-100))}'"
    path = _with_plugin(tmp_path / "config", Plugin(script=script, reported=""))
    assert "prints credentials that expired 10" in reported(path)
    assert reported(path).endswith("; log in again, or correct this node's clock if it is ahead")


ODD = st.sampled_from(
    [None, "", 0, -1, True, [], {}, "\0", "x" * 5000, "é", " ", [None], {"name": None}, 1.5, "%", "https://"]
)
WHOLE: Final = document(
    {
        "token": "t",
        "tokenFile": "/dev/null",
        "client-certificate": "/etc/passwd",
        "client-key-data": "eA==",
        "username": "u",
        "password": "p",
        "auth-provider": {"name": "oidc", "config": {"id-token": "a.e30.c", "idp-issuer-url": "http://127.0.0.1:1"}},
        "exec": {"apiVersion": V1, "command": "/bin/true", "args": ["x"], "env": [{"name": "A", "value": "a"}]},
    },
    certificate_authority_data="eA==",
    tls_server_name="a",
    proxy_url="http://127.0.0.1:1",
    insecure_skip_tls_verify=True,
    extensions=[{"name": "client.authentication.k8s.io/exec", "extension": {}}],
)


def _places(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [place for key, child in inner for place in [(*at, key), *_places(child, (*at, key))]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_kubeconfig_raises_anything_else(tmp_path: Path, data: st.DataObject) -> None:
    """Any odd value in any place of a kubeconfig is an error of ours, which no thread ends by."""
    found = copy.deepcopy(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.sampled_from(_places(found)))
        if data.draw(st.booleans()):
            _drop(*place)(found)
        else:
            _set(copy.deepcopy(data.draw(ODD)), *place)(found)  # the next round may change it
    path = _write(tmp_path / "config", found)
    with Api(path) as api, pytest.raises(ApiError):
        api.call("GET", "/version")
