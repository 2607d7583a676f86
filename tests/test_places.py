from __future__ import annotations

import pytest

from mixtree.errors import StorageError
from mixtree.places import LONGEST_FILE_NAME, file_name, in_markdown, is_text, said, without_secrets

SHOWN = {
    "postgres://u:hunter2@h:5432/base": "postgres://u@h:5432/base",
    "mysql://u:hunter2@h": "mysql://u@h",
    "postgresql://u:hunter2@h/b?sslmode=require": "postgresql://u@h/b?sslmode=require",
    "postgresql://h/b?user=u&password=hunter2&sslmode=require": "postgresql://h/b?user=u&sslmode=require",
    "postgresql://h/b?PassWord=hunter2": "postgresql://h/b",
    "postgresql://h/b?pass%77ord=hunter2;sslpassword=hunter2": "postgresql://h/b",
    "s3://bucket/models?aws_secret_access_key=hunter2&token=hunter2": "s3://bucket/models",
    "sftp://u:hun@ter2@h/models": "sftp://u@h/models",
    "sftp://u:hun/ter2@h/models": "sftp://u@h/models",
    "sftp://u:hun?ter2@h/models": "sftp://u@h/models",
    "sftp://:hunter2@h/models": "sftp://@h/models",
    # Nothing is secret in these.
    "sftp://me@host:22/home/me@work/models": "sftp://me@host:22/home/me@work/models",
    "memory://host:80/a@b": "memory://host:80/a@b",
    "postgresql://[::1]:5432/a@b": "postgresql://[::1]:5432/a@b",
    "hf://datasets/me/rows@main": "hf://datasets/me/rows@main",
    "sqlite:////srv/a:b@c.db": "sqlite:////srv/a:b@c.db",
    "file with spaces?password=x": "file with spaces?password=x",
}


@pytest.mark.parametrize(("url", "shown"), SHOWN.items())
def test_secrets_of_a_url_are_hidden(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
    assert without_secrets(shown) == shown
    assert said(f"cannot open ({url}) now") == f"cannot open ({shown}) now" or "?" in url


def test_an_error_tells_no_secret() -> None:
    text = "no driver for mysql://u:hunter2@h/b and s3://b/x?token=hunter2, sorry"
    assert str(StorageError(text)) == "no driver for mysql://u@h/b and s3://b/x sorry"
    assert StorageError(3).args == (3,)


@pytest.mark.parametrize("letter", ["a", "名", "é", "/", "🌳"])
def test_a_name_of_any_length_is_a_file_s(letter: str) -> None:
    found = {file_name(letter * length) for length in range(1, 101)}
    assert len(found) == 100
    assert all(len(each.encode()) <= LONGEST_FILE_NAME for each in found)


def test_short_names_are_as_they_were_and_no_name_is_another_s_short_form() -> None:
    assert file_name("名" * 28) == "%E5%90%8D" * 28
    short = file_name("名" * 29)
    assert file_name("名" * 20 + short[180:]) != short


HOSTILE = "\x1b[31m\u202e\u2028\x9b\r\x07\udcff\ud800\U000e0041\ufeff"


def test_nothing_that_is_said_steers_a_terminal_or_hides() -> None:
    shown = said(f"a{HOSTILE}b")
    assert shown == (r"a\x1b[31m\u202e\u2028\x9b\x0d\x07\xff\ud800\U000e0041\ufeffb")
    assert said(shown) == shown
    assert str(StorageError(f"no {HOSTILE}")).isprintable()


@pytest.mark.parametrize("name", ["名前 – é 🌳", "می‌خواهم", "two\nlines\tand more", "👩‍💻", "a\\x1b"])
def test_what_people_write_is_said_as_it_is(name: str) -> None:
    assert said(name) == name


def test_a_name_is_no_markup_of_a_page() -> None:
    page = in_markdown("<script>x</script> ![i](http://h/?a) `a|b`\n# *big* &amp; \x1b[0m")
    assert not set("<>\n\x1b") & set(page)
    assert page == (
        r"&lt;script&gt;x&lt;/script&gt; !\[i\](http://h/?a) \`a\|b\` # \*big\* &amp;amp; \\x1b\[0m"
    )


def test_text_is_what_utf_8_can_hold() -> None:
    assert is_text("a") and is_text("名\x1b")
    assert not any(map(is_text, ("\udcff", "a\0", 3)))
