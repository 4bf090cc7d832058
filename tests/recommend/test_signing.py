"""Signed artefacts: with a key configured, nothing else is loaded."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

import dgcf
from dgcf.errors import ArtifactError, ConfigError
from dgcf.recommend import Recommender
from tests.cli.in_process import invoke, refusal
from tests.recommend.conftest import random_dataset, untrained

FORMS = ["kept.dgcf", "kept"]


def pair(folder: Path, name: str = "key", key: Any = None, password: bytes | None = None) -> tuple[Path, Path]:
    """The files of a private key and of its public one."""
    key = key or ed25519.Ed25519PrivateKey.generate()
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption_algorithm=locked)
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture(scope="module")
def rec() -> Recommender:
    return Recommender.of(untrained(random_dataset(4, 5), layers=1, dim=2))


@pytest.mark.parametrize("form", FORMS)
def test_signed_artefact_loads(rec: Recommender, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = pair(tmp_path)
    path = rec.save(tmp_path / form, sign=private)
    assert dgcf.load(path).recommend(0, 2) == rec.recommend(0, 2)  # without a key the signature does not matter
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(public))
    assert dgcf.load(path).recommend(0, 2) == rec.recommend(0, 2)


@pytest.mark.parametrize("form", FORMS)
def test_unsigned_artefact_is_refused(
    rec: Recommender, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rec.save(tmp_path / form)
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(pair(tmp_path)[1]))
    with pytest.raises(ArtifactError, match="is not signed, and DGCF_VERIFY_KEY requires it"):
        dgcf.load(path)


@pytest.mark.parametrize("form", FORMS)
def test_artefact_signed_with_other_key_is_refused(
    rec: Recommender, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rec.save(tmp_path / form, sign=pair(tmp_path, "other")[0])
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(pair(tmp_path)[1]))
    with pytest.raises(ArtifactError, match=r"the signature of .* does not match the key"):
        dgcf.load(path)


def test_signature_of_other_recommender_is_refused(
    rec: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = pair(tmp_path)
    path = rec.save(tmp_path / "kept", sign=private)
    other = Recommender.of(untrained(random_dataset(4, 5), layers=1, dim=2, seed=1)).save(tmp_path / "other")
    shutil.copy(path / "manifest.sig", other / "manifest.sig")
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(public))
    with pytest.raises(ArtifactError, match=r"the signature of .* does not match the key"):
        dgcf.load(other)
    shutil.copy(other / "embeddings.safetensors", path)  # the manifest is signed, the member is not the one it names
    with pytest.raises(ArtifactError, match=r"embeddings\.safetensors does not match its checksum"):
        dgcf.load(path)


def test_signature_of_wrong_size_is_refused(rec: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = pair(tmp_path)
    path = rec.save(tmp_path / "kept", sign=private)
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(public))
    for content in (b"", b"short", bytes(2**20)):
        (path / "manifest.sig").write_bytes(content)
        with pytest.raises(ArtifactError, match=r"signature|manifest\.sig"):
            dgcf.load(path)


def test_unsigned_artefact_replaces_signed_folder(rec: Recommender, tmp_path: Path) -> None:
    rec.save(tmp_path / "kept", sign=pair(tmp_path)[0])
    rec.save(tmp_path / "kept", overwrite=True)
    assert not (tmp_path / "kept" / "manifest.sig").exists()


def test_run_folders_are_refused_where_a_signature_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(pair(tmp_path)[1]))
    with pytest.raises(ArtifactError, match="is a run folder, which has no signature"):
        dgcf.load(tmp_path / "run")


def test_files_that_are_not_keys_are_refused(rec: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = pair(tmp_path)
    (tmp_path / "junk.pem").write_bytes(b"\xffjunk")
    wrong = {
        "No such file": tmp_path / "nowhere.pem",
        "not a PEM file": tmp_path / "junk.pem",
        "decrypt it with": pair(tmp_path, "locked", password=b"secret")[0],
        "another algorithm": pair(tmp_path, "curve", ec.generate_private_key(ec.SECP256R1()))[0],
        r"public\.pem|not a PEM": public,
    }
    for reason, key in wrong.items():
        with pytest.raises(ConfigError, match=f"is not an Ed25519 private key .*{reason}"):
            rec.save(tmp_path / "kept.dgcf", sign=key)
        assert not (tmp_path / "kept.dgcf").exists()
    path = rec.save(tmp_path / "kept.dgcf", sign=private)
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(private))
    with pytest.raises(ConfigError, match="is not an Ed25519 public key"):
        dgcf.load(path)


def test_missing_cryptography_names_the_package(
    rec: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = pair(tmp_path)
    path = rec.save(tmp_path / "kept.dgcf", sign=private)
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert dgcf.load(path)
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(public))
    with pytest.raises(ConfigError, match=r"pip install 'dgcf\[sign\]'"):
        dgcf.load(path)


def test_export_command_signs(rec: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = pair(tmp_path)
    unsigned, signed = rec.save(tmp_path / "unsigned.dgcf"), tmp_path / "signed.dgcf"
    assert invoke("export", unsigned, "--out", signed, "--sign", private)["format"] == "dgcf"
    assert "only a recommender file can be signed" in refusal(
        "export", unsigned, "--out", tmp_path / "a", "--sign", private
    )
    monkeypatch.setenv("DGCF_VERIFY_KEY", str(public))
    assert len(invoke("recommend", signed, "--user", "0", "--seen")["recommendations"]) == 5
    assert "is not signed" in refusal("recommend", unsigned, "--user", "0")
