"""The values of a trace beside the robot, and the viewer within a cell of a notebook."""

import sys
import types
import webbrowser

import numpy as np
import pytest

import qddot
from qddot.joints import Revolute

pytest.importorskip("viser", reason="needs viser: pip install 'qddot[view]'")

HOSTILE = "<script>document.title='hit'</script>"


def trace_of(name="arm"):
    b = qddot.Builder(name).link(f"{name} upper", 1.0, (0.2, 0, 0), np.eye(3) * 0.01).link("lower", 1.0, (0.2, 0, 0))
    b.joint("shoulder", "world", f"{name} upper", Revolute("z")).joint(
        "elbow", f"{name} upper", "lower", Revolute("y"), (0.4, 0, 0)
    )
    robot = qddot.Robot(b.model(), compiled=False)
    return robot.trace("inverse_dynamics", [0.3, 0.2], [1.0, -2.0], [0.5, 0.1])


@pytest.fixture
def viewer():
    shown = trace_of(HOSTILE).show(browser=False, block=False)
    yield shown
    shown.close()


def test_a_symbol_is_a_table_and_arrows(viewer):
    tab, trace = viewer.values, viewer.values.trace
    names = viewer.robot.model.link_names
    assert tab.choice.value == "Sdot_v" or tab.choice.value in trace.values
    tab.choice.value = "V"
    tab.update()
    assert "&lt;script&gt;" in tab.table.content
    assert "<script" not in tab.table.content
    assert f"{trace.V['lower'][2]:.5g}" in tab.table.content
    arrow = tab.arrows[2, "angular"]
    assert arrow.visible
    way = arrow.points[0, 1] - arrow.points[0, 0]
    w = trace.V["lower"][:3]
    np.testing.assert_allclose(way / np.linalg.norm(way), w / np.linalg.norm(w), atol=1e-6)
    longest = max((names[1], names[2]), key=lambda n: np.linalg.norm(trace.V[n][:3]))
    far = tab.arrows[names.index(longest), "angular"].points[0, 1]
    assert np.linalg.norm(far) == pytest.approx(0.35 * viewer.scene.size, rel=1e-5)
    assert not tab.arrows[1, "linear"].visible  # the first link turns about its origin
    tab.arrows_shown.value = False
    tab.update()
    assert not any(a.visible for a in tab.arrows.values())


def test_matrices_have_no_arrows(viewer):
    tab = viewer.values
    for symbol in viewer.values.trace.values:
        tab.choice.value = symbol
        tab.update()
        assert viewer.values.trace.symbols[symbol].meaning[:5] in tab.table.content
    tab.choice.value = "T"
    tab.update()
    assert not any(a.visible for a in tab.arrows.values())


def test_the_viewer_within_a_cell(viewer):
    assert viewer._repr_html_().startswith(f'<iframe src="{viewer.url}"')


def test_a_notebook_opens_no_window(monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    robot = trace_of().robot
    robot.show([0.1, 0.2], block=False).close()
    assert len(opened) == 1
    shell = types.ModuleType("IPython")
    shell.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", shell)
    shown = robot.show([0.1, 0.2], block=False)
    shown.close()
    assert len(opened) == 1
    assert np.array_equal(shown.q, [0.1, 0.2])
