"""Sign and verify artefacts: an Ed25519 signature of the manifest, which holds the checksum of every member.

``DGCF_VERIFY_KEY`` names the file of a public key. If it is set, only artefacts signed with its private key are loaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from dgcf.errors import ArtifactError, ConfigError
from dgcf.stored import read_member

VERIFY_KEY = "DGCF_VERIFY_KEY"
SIGNATURE_BYTES = 64
_KEY_BYTES = 2**16


def sign(manifest: bytes, key: Path) -> bytes:
    """Return the signature of a manifest by the private key in a PEM file."""
    signature: bytes = _key(key, "private").sign(manifest)
    return signature


def required() -> Path | None:
    """Return the file of the public key that every artefact must be signed for, or None if none is required."""
    key = os.environ.get(VERIFY_KEY, "")
    return Path(key).expanduser() if key else None


def verify(path: Path, manifest: bytes, signature: bytes | None) -> None:
    """Raise ``ArtifactError`` if a signature is required and ``signature`` is missing or not valid."""
    key = required()
    if key is None:
        return
    if signature is None:
        raise ArtifactError(
            f"{path} is not signed, and {VERIFY_KEY} requires it; sign it where it was made with `dgcf export --sign`, "
            f"or unset {VERIFY_KEY} to load it as it is."
        )
    public = _key(key, "public")
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(signature, manifest)
    except InvalidSignature:
        raise ArtifactError(
            f"the signature of {path} does not match the key {key}; do not trust it, and get it again from its source."
        ) from None


def _key(path: Path, kind: Literal["private", "public"]) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    except ImportError:
        raise ConfigError(
            "signatures need the package cryptography; install it with: pip install 'dgcf[sign]'."
        ) from None
    try:
        data = read_member(path.resolve(), _KEY_BYTES)
        if kind == "private":
            key: Any = serialization.load_pem_private_key(data, password=None)
        else:
            key = serialization.load_pem_public_key(data)
        if isinstance(key, Ed25519PrivateKey if kind == "private" else Ed25519PublicKey):
            return key
        reason = "a key of another algorithm"
    except OSError as problem:
        reason = problem.strerror or str(problem)
    except TypeError:  # raised for a missing password
        reason = f"encrypted: decrypt it with `openssl pkey -in {path} -out KEY.pem`"
    except Exception:  # the library raises many errors for a file that is not a key
        reason = "not a PEM file of a key"
    raise ConfigError(
        f"{path} is not an Ed25519 {kind} key ({reason}); make a pair with `openssl genpkey -algorithm ed25519 -out "
        "KEY.pem` and `openssl pkey -in KEY.pem -pubout -out PUBLIC.pem`."
    )
