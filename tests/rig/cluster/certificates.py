"""A certificate authority of the tests, by the openssl command: servers, clients, also expired or of tomorrow."""

import datetime as dt
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# `openssl ca` and not `openssl x509`: only it can set both ends of the validity in OpenSSL 3.0.
_CONFIG: Final = """\
[ca]
default_ca = this
[this]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
copy_extensions = none
[any]
organizationName = optional
commonName = supplied
[req]
distinguished_name = name
[name]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates; `certificate` is what its users trust."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets the key and everything issued."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"
        self._count = 0
        self._config = folder / "openssl.cnf"
        self._config.write_text(_CONFIG.format(folder=folder), encoding="utf-8")
        (folder / "index.txt").touch()
        new_key(self._key)
        # As strict readers want it (Python's VERIFY_X509_STRICT, the default from 3.13): key usage and key identifier.
        extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
        options = [word for extension in extensions for word in ("-addext", extension)]
        command = ["req", "-new", "-x509", "-config", str(self._config), "-key", str(self._key), "-days", "30"]
        openssl(*command, *options, "-subj", f"/CN=test-ca-{folder.name}", "-out", str(self.certificate))

    def server(self, *names: str, not_before: dt.datetime | None = None, not_after: dt.datetime | None = None) -> Pair:
        """A server's certificate for DNS names and IPv4 addresses; it is valid from an hour ago for 30 days."""
        kinds = ("IP" if name.replace(".", "").isdigit() else "DNS" for name in names)
        alternatives = ",".join(f"{kind}:{name}" for kind, name in zip(kinds, names, strict=True))
        return self._issue("/CN=server", f"serverAuth\nsubjectAltName={alternatives}", not_before, not_after)

    def client(
        self, user: str, *groups: str, not_before: dt.datetime | None = None, not_after: dt.datetime | None = None
    ) -> Pair:
        """A client's certificate: Kubernetes takes the common name as the user, organizations as groups."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        return self._issue(subject, "clientAuth", not_before, not_after)

    def _issue(self, subject: str, usage: str, not_before: dt.datetime | None, not_after: dt.datetime | None) -> Pair:
        self._count += 1
        now = dt.datetime.now(dt.UTC)
        made = self._folder / f"issued-{self._count}"
        pair = Pair(certificate=made.with_suffix(".crt"), key=made.with_suffix(".key"))
        request, extensions = made.with_suffix(".csr"), made.with_suffix(".ext")
        extensions.write_text(
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
            f"subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\nextendedKeyUsage={usage}\n",
            encoding="utf-8",
        )
        new_key(pair.key)
        config = ("-config", str(self._config))
        openssl("req", "-new", *config, "-key", str(pair.key), "-subj", subject, "-out", str(request))
        validity = (
            *("-startdate", _stamp(not_before or now - dt.timedelta(hours=1))),
            *("-enddate", _stamp(not_after or now + dt.timedelta(days=30))),
        )
        authority = ("-cert", str(self.certificate), "-keyfile", str(self._key), "-extfile", str(extensions))
        files = ("-in", str(request), "-out", str(pair.certificate), "-notext", "-batch")
        openssl("ca", *config, *authority, *validity, *files)
        return pair


def new_key(path: Path, *, rsa: bool = False) -> None:
    """Write a new private key; an elliptic curve unless RSA is wanted."""
    kind = ("RSA", "rsa_keygen_bits:2048") if rsa else ("EC", "ec_paramgen_curve:P-256")
    openssl("genpkey", "-algorithm", kind[0], "-pkeyopt", kind[1], "-out", str(path))


def openssl(*arguments: str, data: bytes = b"") -> bytes:
    """Run openssl and give what it writes. Raises RuntimeError with its own words."""
    ended = subprocess.run(["openssl", *arguments], input=data, capture_output=True, timeout=180, check=False)
    if ended.returncode:
        raise RuntimeError(f"openssl {' '.join(arguments)}: {ended.stderr.decode(errors='replace')}")
    return ended.stdout


def _stamp(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y%m%d%H%M%SZ")
