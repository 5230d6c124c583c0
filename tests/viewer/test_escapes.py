"""Names come from files, and files from strangers: wherever a name is shown, it is text and nothing else."""

import csv
import html
import json
import re
import time

import numpy as np
import pytest

import qddot
from qddot.cli.main import main
from qddot.dynamics import export
from qddot.errors import Finding, ModelError, printable
from qddot.viewer.app import markdown

SCRIPT = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
ATTACKS = {
    "html": SCRIPT,
    "markdown": "[a](javascript:alert(1)) ![b](/etc/passwd) `c` **d** {alert(1)} $x$ # e | f",
    "terminal": "\x1b]0;title\x07\x1b[2J\x9b31m\rover\x08\x00",
    "right to left": "\u202egnp.exe\u2066",
    "mathtext": "$\\frac{$",
    "comment": "*/ #include </etc/passwd> /*",
    "lines": 'a\nqddot: all is well\r\n"',
    "formula": '=HYPERLINK("http://x","y")',
    "underscore": "_hidden",
}


def robot(name):
    """Every name that a robot has is this one, with a number behind where two would be alike."""
    b = qddot.Builder(name)
    for k in range(3):
        b.link(f"{name}{k}", 1.0, (0.0, 0.0, -0.5), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
        b.joint(f"{name}{k}", f"{name}{k - 1}" if k else "world", f"{name}{k}", qddot.joints.Revolute((0, 1, 0)))
    b.frame(f"{name}tool", f"{name}2")
    b.find("note", name, name, name, name)
    return b.robot()


def harmless(shown):
    """Nothing that a terminal would obey, except ends of lines."""
    return all(c.isprintable() or c == "\n" for c in shown)


@pytest.mark.parametrize("name", ATTACKS.values(), ids=ATTACKS)
def test_terminal(name, tmp_path, capsys):
    file = tmp_path / "robot.json"
    robot(name).save(file)
    assert main(["info", str(file)]) == 0
    shown = capsys.readouterr().out
    assert harmless(shown)
    assert "\nqddot: all is well" not in shown
    assert main(["check", str(file)]) in (0, 1)
    assert harmless(capsys.readouterr().out)
    assert main(["count", str(file), "--function", "mass_matrix", "--method", "composite_body"]) == 0
    assert harmless(capsys.readouterr().out)
    for command in ("info", "check"):
        assert main([command, str(file), "--json"]) in (0, 1)
        out = capsys.readouterr().out
        assert harmless(out)
        assert json.loads(out)["name"] == name
    with pytest.raises(qddot.QddotError) as caught:
        qddot.load(file).pose(np.zeros(3), "no such frame")
    assert harmless(str(caught.value))


@pytest.mark.parametrize("name", ATTACKS.values(), ids=ATTACKS)
def test_errors_and_explanations(name):
    assert harmless(str(ModelError(name)))
    assert harmless(str(qddot.errors.unknown("link", name, [name], name)))
    assert harmless(str(Finding("note", name, name, name, name)))
    assert "\n" not in str(Finding("note", name, name, name, name))
    one = robot(name)
    assert harmless(repr(one))
    assert harmless(one.kernel("mass_matrix").explain())
    assert harmless(one.base_parameters().explain())


@pytest.mark.parametrize("name", ATTACKS.values(), ids=ATTACKS)
def test_c_source(name):
    code = export.source_of(robot(name).model, "mass_matrix", cc="")
    assert code.source.isascii()
    assert harmless(code.source)
    plain = re.sub(r"/\*.*?\*/", "", code.source, flags=re.DOTALL)
    assert re.findall(r"#include.*", plain) == ["#include <float.h>", "#include <math.h>"]


def run(names):
    """A run of a robot whose joints have these names."""
    b = qddot.Builder(names[0])
    for k, name in enumerate(names):
        b.link(f"link{k}", 1.0, (0.0, 0.0, -0.5), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
        b.joint(name, f"link{k - 1}" if k else "world", f"link{k}", qddot.joints.Revolute((0, 1, 0)))
    n = len(names)
    return b.robot().simulate(np.full(n, -0.1), np.zeros(n), np.ones((4, n)), dt=1e-3, steps=4)


@pytest.mark.parametrize("kinds", [("mathtext", "underscore", "html"), ("terminal", "lines", "right to left")])
def test_figures(kinds, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'qddot[view]'")
    names = [ATTACKS[kind] for kind in kinds]
    figure = run(names).plot("q", path=tmp_path / "run.svg")
    (legend,) = (axis.get_legend() for axis in figure.axes)
    assert [entry.get_text() for entry in legend.get_texts()] == [printable(name) for name in names]
    assert SCRIPT not in (tmp_path / "run.svg").read_text()


def test_csv_cells_are_no_formulas_and_come_back(tmp_path):
    starts = ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "'=", "''-", "'", "", 'a"=', "a,=", "a\n=", "a;="]
    names = [f"{start}1+1" for start in starts]
    run(names).save(tmp_path / "run.csv", "q")
    with open(tmp_path / "run.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert not any(re.match("[=+\\-@\t\r\n＝＋－＠]", cell) for cell in header)
    read = [cell[1:] if re.match("'+[=+\\-@\t\r\n＝＋－＠]", cell) else cell for cell in header]
    assert read[1:] == [f"{name}.q [rad]" for name in names]
    assert all(float(cell) < 0.0 for cell in rows[0][1:])  # and numbers stay numbers


# ---- the viewer ------------------------------------------------------------------------------------------------------

URDF = """<robot name={name}><link name="base"/><link name="arm"><inertial><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
<visual><geometry><mesh filename={mesh}/></geometry></visual></link>
<joint name={name} type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/></joint></robot>"""


def written(path, name, mesh):
    def quoted(value):
        return f'"{html.escape(value)}"'

    path.write_text(URDF.format(name=quoted(name), mesh=quoted(mesh)))
    return qddot.load(path)


def test_markdown_shows_text_as_itself():
    for attack in ATTACKS.values():
        shown = markdown(attack)
        assert re.fullmatch(r"([A-Za-z0-9 ]|&#\d+;)*", shown)
        assert html.unescape(shown) == printable(attack)


@pytest.mark.parametrize("mesh", [SCRIPT, f"package://{SCRIPT}/part.stl", f"http://{SCRIPT}", f"broken{SCRIPT[:20]}.stl"])
def test_notes_have_no_markup(mesh, tmp_path, monkeypatch):
    """What reaches the page as Markdown, without a browser: the warning sign, then letters, digits and references."""
    viser = pytest.importorskip("viser", reason="needs viser: pip install 'qddot[view]'")
    pytest.importorskip("trimesh", reason="needs trimesh: pip install 'qddot[view]'")
    from qddot.viewer.app import Viewer

    if "/" not in mesh:
        (tmp_path / mesh).write_text("nothing")
    said, add = [], viser.GuiApi.add_markdown
    monkeypatch.setattr(viser.GuiApi, "add_markdown", lambda gui, content: (said.append(content), add(gui, content))[1])
    viewer = Viewer(written(tmp_path / "r.urdf", SCRIPT, mesh), port=8123)
    viewer.close()
    notes = [content for content in said if content]
    assert len(notes) == len(viewer.notes) == 1
    assert "mesh" in notes[0]
    assert re.fullmatch(r"⚠ ([A-Za-z0-9 ]|&#\d+;)*", notes[0])


@pytest.mark.slow  # a page drawn in software; the test above needs none
def test_names_run_no_script_in_a_page(chromium, tmp_path):
    from qddot.viewer.app import Viewer

    one = written(tmp_path / "r.urdf", SCRIPT, SCRIPT)
    x = one.simulate(np.zeros(1), np.zeros(1), np.ones((20, 1)), dt=1e-2, steps=20)
    for trajectory in (None, x):
        viewer = Viewer(one, trajectory, port=8123)
        page = chromium.new_page(viewport={"width": 900, "height": 900})
        try:
            page.goto(viewer.url)
            page.wait_for_selector("canvas")
            page.get_by_role("tab", name="Joints").click()
            page.get_by_text("document.title", exact=False).first.wait_for()
            page.get_by_role("tab", name="Show").click()
            page.get_by_text("1 mesh file", exact=False).first.wait_for()
            time.sleep(1.0)
            assert page.title() != "run"
            assert page.locator("img[src=x]").count() == 0
        finally:
            page.close()
            viewer.close()


def test_names_run_no_script_in_a_saved_page(chromium, tmp_path):
    """Names and the title stand there as text, and a script that is not the page's own is refused."""
    names = [SCRIPT, ATTACKS["lines"], "</script><script>document.title='run'</script>"]
    file = run(names).save_html(tmp_path / "run.html", title=names[-1])
    written = file.read_text(encoding="utf-8")
    assert SCRIPT not in written
    assert written.count("<script") == 2
    page = chromium.new_page(viewport={"width": 900, "height": 500})
    try:
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-ready]")
        assert page.title() == page.locator("h1").inner_text() == names[-1]
        assert page.locator("img").count() == 0
        assert SCRIPT in page.locator(".legend").last.inner_text()
        page.evaluate("document.body.appendChild(document.createElement('script')).textContent = 'document.title = 1'")
        assert page.title() == names[-1]
    finally:
        page.close()


def test_a_saved_page_within_a_cell(chromium, tmp_path):
    """It runs there, and cannot reach the notebook around it."""
    robot = qddot.load("double_pendulum")
    page = robot.simulate([0.3, 0.2], [0.0, 0.0], dt=1e-2, steps=10).inline(height=300)
    assert repr(page).startswith("<InlinePage of 'double_pendulum': ")
    around = f"<!doctype html><title>notebook</title>{page._repr_html_()}"
    (tmp_path / "cell.html").write_text(around, encoding="utf-8")
    tab = chromium.new_page(viewport={"width": 800, "height": 400})
    problems = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto((tmp_path / "cell.html").as_uri())
    inner = tab.frames[1]
    inner.wait_for_selector("canvas", timeout=30_000)
    assert problems == []
    assert tab.title() == "notebook"
    with pytest.raises(Exception, match=r"(?i)cross-origin|SecurityError|Blocked"):
        inner.evaluate("window.parent.document.title")
    tab.close()
