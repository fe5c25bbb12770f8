"""Certificates of authorities in files and directories."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from stompkit._common.certificates import authorities, client_context, distrust
from tests.server.certificates import Authority


def trusted(where: Path) -> int:
    return client_context(str(where)).cert_store_stats()["x509"]


def test_a_file_may_have_several_certificates_and_a_key(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    both = tmp_path / "both.crt"
    files = [Authority(tmp_path / name, name).file for name in ("one", "two")]
    key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    both.write_bytes(key.join(Path(each).read_bytes() for each in files))
    assert len(authorities(str(both))) == trusted(both) == 2


def test_of_a_directory_the_pem_files_count(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "note.txt").write_text("nothing")
    (tmp_path / "wrong.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    assert trusted(tmp_path) == len(authorities(str(tmp_path)))
    assert Path(authority.file).read_bytes().strip() in [
        each.strip() for each in authorities(str(tmp_path))
    ]


def test_without_a_certificate_the_path_and_the_cause_are_named(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path, "has no certificates in files that end with .pem"),
        (tmp_path / "none", "none: No such file or directory"),
        (tmp_path / "empty", "empty has no certificate of an authority, as PEM"),
    ):
        (tmp_path / "empty").write_text("")
        with pytest.raises(ValueError, match=words):
            client_context(str(path))


def test_a_wrong_name_and_a_wrong_time_have_other_remedies() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = 62, "Hostname mismatch"
    assert distrust(error, "here") == (
        "its certificate is for another name (Hostname mismatch): use a host name that is in it"
    )
    error.verify_code, error.verify_message = 10, "certificate has expired"
    assert distrust(error, "here") == (
        "its certificate is not valid now (certificate has expired): renew it there, or set the"
        " clock of this machine"
    )
    error.verify_code, error.verify_message = 20, "unable to get local issuer certificate"
    assert distrust(error, "here").endswith("certificate of the authority that signed it here")
