"""What is wrong where a Dask scheduler and this process do not agree on TLS, and what to do.

Dask takes the certificates from its own configuration, ``distributed.comm.tls``, and has errors
for all of this; but they come from within TLS and name neither the setting nor its file.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator

_FILES = ("ca-file", "client.cert", "client.key")


def tls_problem(address: str, error: BaseException) -> tuple[str, str] | None:
    """What is wrong and what to do; None where `error` has nothing to do with TLS.

    Parameters
    ----------
    address : str
        Of a scheduler, as the user gave it.
    error : BaseException
        What came of talking to it.
    """
    import dask.config
    from distributed.comm.addressing import normalize_address
    from distributed.comm.core import CommClosedError

    scheme, _, host = normalize_address(address).partition("://")
    if scheme == "tcp":
        if dask.config.get("distributed.comm.require-encryption"):
            return "Dask is configured to require encryption", f"give its address as tls://{host}"
        # Where nobody is, Dask goes on trying, and the error is that its time is up.
        if isinstance(error, CommClosedError):
            return (
                "it ended the connection at once, as one that uses TLS does",
                f"if so, give its address as tls://{host}, and the certificates by {_settings()}",
            )
    if scheme != "tls":
        return None
    return _problem_of_files() or _problem_of_handshake(host, error)


def _problem_of_files() -> tuple[str, str] | None:
    """What is wrong with the certificates of this process."""
    import dask.config
    from distributed.security import Security

    files = {name: dask.config.get(f"distributed.comm.tls.{name}", None) for name in _FILES}
    # The key may be in the file of the certificate.
    missing = [name for name in _FILES[:2] if not files[name]]
    if missing:
        return f"this process has no certificates: {_settings(missing)} not set", "set them"
    for name, path in files.items():
        try:
            if path and "\n" not in path:  # else it is no path, but the certificate itself
                open(path, "rb").close()
        except OSError as error:
            why = f"{_settings([name])} names {path}: {error.strerror}"
            return why, "give a file that is there and can be read"
    try:
        Security().get_connection_args("client")
    except (ssl.SSLError, ValueError) as error:
        named = ", ".join(path for path in files.values() if path and "\n" not in path)
        return (
            f"{named} cannot be used: {error}",
            "give an authority's certificate, one that it signed, and the key of that, as PEM",
        )
    return None


def _problem_of_handshake(host: str, error: BaseException) -> tuple[str, str] | None:
    for cause in _causes(error):
        text = str(cause)
        if "cannot convert to SSL" in text or "WRONG_VERSION_NUMBER" in text:
            return (
                "it talks, but without TLS",
                f"start it with certificates, or give its address as tcp://{host}",
            )
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not to be trusted: {cause.verify_message}",
                f"give the certificate of the authority that signed it by {_settings(['ca-file'])}",
            )
        if isinstance(cause, ssl.SSLError) or "SSLError" in text:
            return (
                f"it refuses the certificate of this process: {text.rpartition('SSLError: ')[2]}",
                "use one that is signed by the authority that the cluster trusts, by "
                + _settings(_FILES[1:]),
            )
    return None


def _settings(names: tuple[str, ...] | list[str] = _FILES) -> str:
    """The variables that configure Dask's TLS."""
    return ", ".join(
        "DASK_DISTRIBUTED__COMM__TLS__" + name.upper().replace(".", "__").replace("-", "_")
        for name in names
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it came of."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
