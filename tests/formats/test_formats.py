"""Formats register themselves, and files are written in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

import qddot
from qddot.formats import registry
from qddot.formats.atomic import replacing
from qddot.robots import double_pendulum


def test_a_new_format_is_one_registration(tmp_path, monkeypatch):
    known = {found.name: found for found in registry.all_formats()}
    monkeypatch.setattr(registry, "_FORMATS", known)

    @registry.register("note", ".note", marks=(b"a note:",), rank=9)
    def _model(path, options):
        assert options.trust
        return double_pendulum.builder().model()

    for name in ("robot.note", "robot.txt"):
        (tmp_path / name).write_text("a note: two bars")
        assert qddot.load(tmp_path / name, trust=True).nv == 2
    with pytest.raises(qddot.InputError, match="floating_base= is for URDF files"):
        qddot.load(tmp_path / "robot.note", floating_base=True)
    (tmp_path / "robot.doc").write_text("nothing of it")
    with pytest.raises(
        qddot.FileError, match=r"ends in .csv, .json, .mjcf, .note, .qddot, .sdf, .toml, .urdf, .xacro or .xml"
    ):
        qddot.load(tmp_path / "robot.doc")


def test_a_new_writer_is_one_registration(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_WRITERS", {})

    @registry.register_writer(".note")
    def _written(model, lossy):
        lost = () if lossy else (qddot.Finding("note", "", "all", "a note is short", "read a book"),)
        return registry.Written(f"a note: {model.name}\n", lost)

    robot = qddot.load("double_pendulum")
    assert [f.message for f in robot.save(tmp_path / "robot.note")] == ["a note is short"]
    assert robot.save(tmp_path / "robot.note", lossy=True) == ()
    assert (tmp_path / "robot.note").read_text() == "a note: double_pendulum\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [("<robot><mujoco/></robot>", "urdf"), ("<!-- <sdf> --><mujoco/>", "mjcf"), ("<sdf/>", "sdf")],
)
def test_xml_files_are_told_apart_by_their_marks(tmp_path, text, name):
    (tmp_path / "robot.xml").write_text(text)
    assert registry.format_of(tmp_path / "robot.xml").name == name


def test_files_are_replaced_in_one_step(tmp_path):
    file = tmp_path / "a.txt"
    with replacing(file) as unfinished:
        unfinished.write_text("one")
        assert not file.exists()
    assert file.read_text() == "one"

    def interrupted(path: Path) -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("two")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(file)
    assert file.read_text() == "one"
    assert list(tmp_path.iterdir()) == [file]
