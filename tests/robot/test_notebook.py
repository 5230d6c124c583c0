"""What objects look like in notebooks: complete, and with everything that comes from a file escaped."""

import html.parser
import re

import numpy as np
import pytest

import qddot
from qddot import notebook
from qddot.joints import Revolute
from qddot.simulation.trajectory import Trajectory

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "'onmouseover='alert(3)",
    "</style></svg></table><iframe src=javascript:alert(4)>",
    "&lt;b&gt;\x1b[31m\u202e",
)
TAGS = {"div", "style", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "svg", "path", "span"}
ATTRIBUTES = {
    "class",
    "open",
    "width",
    "height",
    "viewbox",
    "role",
    "d",
    "fill",
    "stroke",
    "stroke-width",
    "stroke-opacity",
}


class Page(html.parser.HTMLParser):
    """Tags, attributes and text of a page, checked: nothing is open at its end."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), set(), "", []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def safe(text):
    """The page, made of our own tags only."""
    page = Page(text)
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    return page


def hostile_robot(name):
    b = qddot.Builder(name, allow_unphysical=True)
    for k in range(2):
        parent = f"{name}{k - 1}" if k else "world"
        b.link(f"{name}{k}", 1.0, (0.1, 0.0, 0.0), np.diag([0.1, 0.1, 0.9]) if k else np.eye(3))
        b.joint(f"{name}j{k}", parent, f"{name}{k}", Revolute("y"), lower=-1.0, upper=2.0, effort_limit=7.0)
    return qddot.Robot(b.model(), compiled=False)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name):
    robot = hostile_robot(name)
    q = np.array([0.1, 0.2])
    run = Trajectory(robot, [0.0, 1.0], np.zeros((2, 2)), np.ones((2, 2)), channels={name: [1.0, 2.0]})
    shown = [robot, run, robot.check(states=1, kernels=False), robot.trace("inverse_dynamics", q, q, q)]
    shown.append(robot.trace("mass_matrix", q))
    for x in shown:
        page = safe(x._repr_html_())
        assert name.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") in page.text
        assert all(c.isprintable() or c in "\n\xa0" for c in page.text)  # our own line feeds and indents


def test_a_robot_has_its_tree_masses_and_limits():
    robot = hostile_robot("arm")
    page = safe(robot._repr_html_())
    assert "2 moving links, nq = 2, nv = 2, 2 kg" in page.text
    for text in ("arm0", "└\xa0arm1", "armj1", "revolute", "-1", "2", "7", "violates the triangle inequality"):
        assert text in page.text
    assert "loop" in safe(qddot.load("fourbar")._repr_html_()).text
    long = safe(qddot.chain(250)._repr_html_())
    assert "and 50 more links" in long.text


def test_a_kernel_has_its_operations_time_and_method():
    kernel = qddot.load("double_pendulum").kernel("inverse_dynamics")
    page, i = safe(kernel._repr_html_()), kernel.info
    for text in (i.method, i.form, "float64", f"{i.instructions:,} instructions", "q (2,), v (2,), a (2,)", " ms"):
        assert text in page.text
    assert all(str(n) in page.text for n in i.ops.values())


def test_a_trajectory_has_a_curve_for_each_column():
    robot = qddot.load("double_pendulum")
    t = np.linspace(0.0, 1.0, 500)
    q = np.stack([np.sin(t), np.cos(t)], axis=-1)
    one = Trajectory(robot, t, q, q, tau=q, info={"integrator": "rk4", "dt": 1e-3})
    text = one._repr_html_()
    safe(text)
    assert text.count("<svg") == 6
    assert "500 times from 0 to 1 s; integrator rk4, dt 0.001" in text
    many = Trajectory(robot, t, np.stack([q] * 40), np.stack([q] * 40))
    assert many._repr_html_().count("<path") == 4 * 16  # of 40 samples so many are drawn
    assert len(many._repr_html_()) < 200_000
    nothing = Trajectory(robot, t, np.zeros((0, 500, 2)), np.zeros((0, 500, 2)))
    assert "no finite values" in safe(nothing._repr_html_()).text
    lost = np.full_like(q, np.nan)
    assert "no finite values" in safe(Trajectory(robot, t, lost, lost)._repr_html_()).text


def test_sparklines():
    def points(y):
        (path,) = re.findall(r"d='([^']*)'", notebook.sparkline(np.array(y)))
        return [(m[0], float(m[1]), float(m[2])) for m in re.findall(r"([ML])([-\d.]+),([-\d.]+)", path)]

    up = points([0.0, 1.0, 2.0])
    assert [p[0] for p in up] == ["M", "L", "L"]
    assert up[0][1] == 0.0 < up[1][1] < up[2][1]
    assert up[0][2] > up[1][2] > up[2][2]  # larger is higher
    broken = points([0.0, np.nan, 2.0, np.inf, 1.0])
    assert [p[0] for p in broken] == ["M", "M", "M"]  # no line across what is not finite
    assert len({p[2] for p in points([3.0, 3.0, 3.0])}) == 1
    assert len(points(np.sin(np.arange(10_000.0)))) == 120
    assert points([1.0]) == [("M", 0.0, points([1.0])[0][2])]


def test_a_check_says_what_fails():
    robot = qddot.load("puma560")
    report = robot.check(states=1, kernels=False)
    assert not report.ok  # its file has an inertia that no body has
    assert all(r.holds for r in report.identities)
    page = safe(report._repr_html_())
    assert "violates the triangle inequality" in page.text
    assert report.summary in str(report)
    assert repr(report) == f"<CheckReport of 'puma560': {report.summary}>"
    slack = qddot.Robot(qddot.Builder("x").link("l").joint("slack", "world", "l", Revolute("z")).model(), compiled=False)
    bad = slack.check(states=1, kernels=False)
    assert not bad.ok
    assert "slack" in safe(bad._repr_html_()).text


def test_pages_within_a_cell():
    assert 'src="http://127.0.0.1:8080"' in notebook.frame(url="http://127.0.0.1:8080")
    text = notebook.frame('<p title="x">\'&</p>', height=300)
    assert 'srcdoc="&lt;p title=&quot;x&quot;&gt;&#x27;&amp;&lt;/p&gt;"' in text
    assert 'sandbox="allow-scripts"' in text  # without access to the notebook that it stands in
    assert 'height="300"' in text


def test_numbers_that_are_not_finite():
    assert notebook.number(np.inf) == "∞"
    assert notebook.number(-np.inf) == "-∞"
    assert notebook.number(np.nan) == "NaN"
    assert notebook.number(-0.0) == "0"


def test_large_things_stay_small():
    robot = qddot.chain(150)
    q = np.zeros(150)
    text = robot.trace("inverse_dynamics", q, q, q)._repr_html_()
    assert "and 51 more" in safe(text).text  # the world is one of the 151
    arm = qddot.load("double_pendulum")
    t = np.arange(20_000.0)
    many = np.broadcast_to(np.float32(1.0), (300, len(t), 2))  # 48 MB if somebody copied it
    assert len(Trajectory(arm, t, many, many)._repr_html_()) < 200_000
