"""Files on shared machines: links, other users' files and what is no file are refused, and nothing of theirs is touched."""

import os
from types import SimpleNamespace

import pytest

from mia_audit import regular_files
from mia_audit.errors import UserError
from mia_audit.regular_files import open_regular, own_folder, private_folder, refuse_links


def test_a_link_inside_results_is_refused_and_one_to_results_is_not(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "elsewhere")
    refuse_links(tmp_path / "results")
    refuse_links(tmp_path / "none")
    (tmp_path / "elsewhere" / "a" / "models").mkdir(parents=True)
    refuse_links(tmp_path / "results" / "a")
    (tmp_path / "results" / "a" / "models" / "shadow-0").symlink_to(tmp_path)
    with pytest.raises(UserError, match=r"results/a/models/shadow-0: a link inside results"):
        refuse_links(tmp_path / "results" / "a")


def test_a_link_is_neither_followed_nor_created_through(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    for name in ("link", "dangling"):
        with pytest.raises(UserError, match="a symbolic link; expected a regular file"):
            open_regular(tmp_path / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "new").exists()


def test_a_hard_link_is_not_truncated(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "other").hardlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="has other hard links"):
        open_regular(tmp_path / "other", os.O_RDWR | os.O_TRUNC, single=True)
    assert (tmp_path / "victim").read_text() == "precious"


def test_fifos_and_folders_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, flags in ((tmp_path / "fifo", os.O_RDONLY), (tmp_path / "fifo", os.O_WRONLY), (tmp_path, os.O_RDWR)):
        with pytest.raises(UserError, match="not a regular file"):
            open_regular(path, flags)


def test_another_users_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("theirs")
    monkeypatch.setattr(regular_files.os, "geteuid", lambda: 12345)
    with pytest.raises(UserError, match="belongs to another user"):
        open_regular(tmp_path / "file", os.O_RDWR | os.O_TRUNC)
    assert (tmp_path / "file").read_text() == "theirs"
    os.close(open_regular(tmp_path / "file", os.O_RDWR, own=False))


def test_a_folder_is_this_users_alone(tmp_path, monkeypatch):
    assert own_folder(tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    assert own_folder(tmp_path / "mine").is_dir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name in ("link", "open"):
        with pytest.raises(UserError, match="expected a folder to which only you can write"):
            own_folder(tmp_path / name)
    monkeypatch.setattr(regular_files, "os", SimpleNamespace(geteuid=lambda: 12345))
    with pytest.raises(UserError, match="XDG_RUNTIME_DIR"):
        own_folder(tmp_path / "mine")


def test_a_new_folder_of_records_is_this_users_alone_and_an_old_one_keeps_its_mode(tmp_path):
    private_folder(tmp_path / "results" / "mine")
    assert (tmp_path / "results" / "mine").stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o770)
    private_folder(tmp_path / "shared")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o770
