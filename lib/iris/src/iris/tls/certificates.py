"""Creates a cluster's certificate authority (CA) and the server certificate that the CA signs.

Every connection uses the server name `SERVER_NAME`, whatever its address. The CA signs for only one cluster, so a
certificate is valid at all addresses, and stays valid when the controller moves. The server certificate contains the
CA's certificate in a custom extension. A client that knows the CA's digest thus gets the CA in an ordinary handshake,
before it sends anything (`iris.tls.trust`).
"""

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rigging.errors import InvalidRequest, MarinError, NotFound
from rigging.filesystem.private import read_private, write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DIRECTORY_NAME: Final = "tls"
SERVER_NAME: Final = "iris-controller"
AUTHORITY_FILES: Final = ("ca-key.pem", "ca.pem")
"""The CA's files, in order of creation: a key without its certificate has no use."""
_CA_EXTENSION: Final = (
    "2.25.268205006409806299022864026585374405889"  # made of a UUID: only our own certificates have it
)
_CA_DAYS: Final = 20 * 365
_SERVER_DAYS: Final = 5 * 365
_RENEWED_DAYS: Final = 365
"""Remaining days below which the controller's start renews a server certificate."""
_CLOCK_MARGIN: Final = datetime.timedelta(days=2)
"""How long before their creation certificates become valid, because clocks of hosts differ."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The certificates and the key with which a controller serves TLS, in PEM.

    Args:
        ca_sha256: SHA-256 (hex) of the authority's certificate (DER), which tokens pin.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    ca_certificate: bytes
    ca_sha256: str
    expires_at: datetime.datetime


def digest_of(pem: bytes) -> str:
    """Return the SHA-256 (hex) of a certificate's DER form, like common tools."""
    import hashlib
    import ssl

    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))).hexdigest()


def ensure_certificates(
    state_dir: Path, *, renew: bool = False, now: datetime.datetime | None = None
) -> ServerIdentity:
    """Return the certificates below a state directory. Create missing ones, and renew those that expire soon or are not
    yet valid.

    The CA is created once. Clients that trust the CA need no change for a new server certificate.

    Args:
        state_dir: The controller's directory; the certificates are in its `tls` directory, mode 0700.
        renew: Create a new server certificate even if the old one is valid.
        now: The current time; None to read the clock.

    Raises:
        MarinError: A file is damaged or cannot be written.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    place = state_dir / DIRECTORY_NAME
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(place, 0o700)
        if not (place / "ca.pem").exists():
            _make_authority(place, now)
        if renew or not (place / "server.pem").exists() or _is_outside_its_time(place / "server.pem", now):
            _make_server(place, now)
    except OSError as error:
        raise MarinError(f"cannot create the certificates in {place}: {error.strerror}") from None
    return read_certificates(state_dir)


def read_certificates(state_dir: Path) -> ServerIdentity:
    """Return the certificates below a state directory.

    Raises:
        NotFound: There are no certificates.
        InvalidRequest: The certificates are damaged or do not match.
        Denied: Other users can read their keys.
    """
    place = state_dir / DIRECTORY_NAME
    names = ("server.pem", "server-key.pem", "ca.pem")
    for name in names:
        if not (place / name).exists():
            raise NotFound(f"there is no {place / name}; `iris cluster certs --make --state-dir {state_dir}` makes it")
    key = read_private(place / "server-key.pem", "the key of the controller's certificate") or b""
    certificate, ca_certificate = ((place / name).read_bytes() for name in ("server.pem", "ca.pem"))
    server = _load(place / "server.pem")
    _check_fit(place, server, _load(place / "ca.pem"), key)
    return ServerIdentity(certificate, key, ca_certificate, digest_of(ca_certificate), server.not_valid_after_utc)


def read_authority(state_dir: Path) -> dict[str, bytes]:
    """Return the files of the authority below a state directory by name, including its key."""
    place = state_dir / DIRECTORY_NAME
    found = {name: read_private(place / name, "a file of the controller's CA") for name in AUTHORITY_FILES}
    return {name: content for name, content in found.items() if content is not None}


def write_authority(state_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write an authority below a state directory. Has no effect if there is one already, or if `files` is
    incomplete.
    """
    place = state_dir / DIRECTORY_NAME
    if (place / "ca.pem").exists() or set(files) != set(AUTHORITY_FILES):
        return
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in AUTHORITY_FILES:
        write_private(place / name, files[name], durable=True)


def authority_in(server_der: bytes) -> bytes | None:
    """Return the authority's certificate (DER) in a server certificate; None if it was not created by iris."""
    from cryptography import x509

    try:
        found = x509.load_der_x509_certificate(server_der).extensions.get_extension_for_oid(
            x509.ObjectIdentifier(_CA_EXTENSION)
        )
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return None
    value = found.value
    return value.value if isinstance(value, x509.UnrecognizedExtension) else None


def _load(path: Path) -> "x509.Certificate":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise InvalidRequest(
            f"{path} is not a certificate: restore it, or remove {path.parent} to create new ones"
        ) from None


def _check_fit(place: Path, server: "x509.Certificate", authority: "x509.Certificate", key: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    # gRPC says of either only that it cannot listen, or says it to clients only.
    mend = f"restore what belongs together, or remove both server files of {place}: they are made anew"
    try:
        own = load_pem_private_key(key, password=None).public_key()
    except ValueError:
        raise InvalidRequest(f"{place / 'server-key.pem'} is not a key: {mend}") from None
    if own != server.public_key():
        raise InvalidRequest(f"{place / 'server-key.pem'} is not the key of {place / 'server.pem'}: {mend}")
    try:
        server.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise InvalidRequest(f"{place / 'server.pem'} was not signed by the CA in {place / 'ca.pem'}: {mend}") from None


def _is_outside_its_time(path: Path, now: datetime.datetime) -> bool:
    """Return whether a certificate expires soon, or is not valid yet because the clock was ahead at its creation."""
    found = _load(path)
    return found.not_valid_before_utc > now or found.not_valid_after_utc - now < datetime.timedelta(days=_RENEWED_DAYS)


def _make_authority(place: Path, now: datetime.datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder("iris cluster CA", "iris cluster CA", key, now, _CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    # The key first: without its certificate it means nothing, and the next try makes both anew.
    write_private(place / "ca-key.pem", _pem_of(key), durable=True)
    write_private(place / "ca.pem", _pem(builder.sign(key, hashes.SHA256())), durable=True)


def _make_server(place: Path, now: datetime.datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

    authority = _load(place / "ca.pem")
    try:
        ca_key = load_pem_private_key(read_private(place / "ca-key.pem", "the key of the CA") or b"", None)
    except ValueError:
        ca_key = None
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey) or ca_key.public_key() != authority.public_key():
        raise InvalidRequest(f"{place / 'ca-key.pem'} is not the key of {place / 'ca.pem'}: restore the one that is")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(SERVER_NAME, "iris cluster CA", key, now, _SERVER_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
    carried = x509.UnrecognizedExtension(x509.ObjectIdentifier(_CA_EXTENSION), authority.public_bytes(Encoding.DER))
    builder = builder.add_extension(carried, critical=False)
    write_private(place / "server-key.pem", _pem_of(key), durable=True)
    write_private(place / "server.pem", _pem(builder.sign(ca_key, hashes.SHA256())), durable=True)


def _builder(
    subject: str, issuer: str, key: "EllipticCurvePrivateKey", now: datetime.datetime, days: int
) -> "x509.CertificateBuilder":
    from cryptography import x509

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])

    return (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_MARGIN)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _pem_of(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
