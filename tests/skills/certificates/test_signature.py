"""Signatures of certificates, with the real ssh-keygen."""

import shutil
import subprocess
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.skills.certificates.checks.check import CheckState
from whet.skills.certificates.checks.signature import check_signature, sign, signature_of

if shutil.which("ssh-keygen") is None:
    pytest.skip("ssh-keygen is not installed (Debian: openssh-client)", allow_module_level=True)


def new_key(folder: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder / name


def signers(folder: Path, **keys: Path) -> Path:
    """A file of allowed signers."""
    lines = [f"{name}@example.org {key.with_suffix('.pub').read_text()}" for name, key in keys.items()]
    file = folder / "allowed"
    file.write_text("".join(lines))
    return file


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file = tmp_path / "certificate.json"
    file.write_text('{"kind": "whet certificate"}\n')
    return file


def state(certificate: Path, allowed: Path | None) -> tuple[CheckState, str]:
    (found,) = check_signature(certificate, allowed)
    return found.state, found.found


def test_a_signature_names_its_signer_and_covers_every_byte(certificate: Path, tmp_path: Path) -> None:
    alice, mallory = new_key(tmp_path, "alice"), new_key(tmp_path, "mallory")
    allowed = signers(tmp_path, alice=alice)
    assert sign(certificate, alice) == signature_of(certificate)
    assert state(certificate, allowed) == (CheckState.OK, "by alice@example.org")
    certificate.write_text(certificate.read_text() + " ")
    assert state(certificate, allowed)[0] is CheckState.FAILED
    assert state(certificate, None)[0] is CheckState.FAILED
    sign(certificate, mallory)
    assert state(certificate, allowed) == (CheckState.FAILED, f"not made by a signer in {allowed}")


def test_a_signature_for_another_purpose_does_not_count(certificate: Path, tmp_path: Path) -> None:
    alice = new_key(tmp_path, "alice")
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", alice, "-n", "file", certificate], check=True)
    assert state(certificate, signers(tmp_path, alice=alice))[0] is CheckState.FAILED


def test_whose_key_it_is_only_a_list_of_signers_tells(certificate: Path, tmp_path: Path) -> None:
    assert check_signature(certificate, None) == [], "it need not be signed"
    assert state(certificate, signers(tmp_path)) == (CheckState.FAILED, "certificate.json.sig is missing")
    sign(certificate, new_key(tmp_path, "alice"))
    found, told = state(certificate, None)
    assert found is CheckState.NOT_CHECKED
    assert "ED25519 key SHA256:" in told
    signature_of(certificate).write_text("garbage")
    assert state(certificate, None)[0] is CheckState.FAILED
    assert state(certificate, tmp_path / "none")[0] is CheckState.FAILED


def test_mistakes_are_one_line(certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="expected the file of an SSH key"):
        sign(certificate, tmp_path / "none")
    with pytest.raises(UserError, match="ssh-keygen did not sign: "):
        sign(certificate, certificate)
    sign(certificate, new_key(tmp_path, "alice"))
    monkeypatch.setenv("PATH", "")
    assert state(certificate, None) == (CheckState.NOT_CHECKED, "ssh-keygen is not installed")
    with pytest.raises(UserError, match="needs ssh-keygen"):
        sign(certificate, certificate)
