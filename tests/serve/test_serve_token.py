from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from selpe.errors import ConfigError
from selpe.serve.token import Token, load_token
from serve_world import SECRET


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "token"
    made = load_token(path)
    assert len(made.secret) >= 43
    assert load_token(path) == made
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_token(tmp_path / "other").secret != made.secret


@pytest.mark.skipif(sys.platform == "win32", reason="file modes of POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    load_token(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="other users"):
        load_token(path)


@pytest.mark.parametrize(
    "content", [b"", b"short", b"x" * 31, b"two words " * 5, "ü".encode() * 40, b"a" * 20 + b"\n" * 20]
)
def test_a_weak_token_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load_token(path)
    assert not content.strip() or content.decode("latin-1").strip() not in str(refused.value)


def test_a_token_file_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be used"):
        load_token(tmp_path / "file" / "token")


def test_a_token_shows_nothing_of_itself() -> None:
    assert SECRET not in repr(Token(SECRET)) + str(Token(SECRET))


def test_the_key_of_a_page_opens_that_page_and_no_other() -> None:
    token = Token(SECRET)
    key = token.key_of("desk-1")
    assert token.opens("desk-1", key)
    assert not token.opens("desk-2", key)
    assert not token.opens("desk-1", key[:-1])
    assert not Token(SECRET + "x").opens("desk-1", key)
    assert SECRET not in key
    assert not token.allows(f"Bearer {key}".encode())
