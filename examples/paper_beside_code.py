"""Kim 2012, (37), (41) and (42), beside what the algorithm computes of a PUMA 560: python examples/paper_beside_code.py"""

import numpy as np

import qddot


def skew(x):
    return np.array([[0.0, -x[2], x[1]], [x[2], 0.0, -x[0]], [-x[1], x[0], 0.0]])


def Ad_inv(T):  # Kim (4), (6): the inverse of a transform takes a velocity of the parent into the link
    R, p = T[:3, :3], T[:3, 3]
    return np.block([[R.T, np.zeros((3, 3))], [-R.T @ skew(p), R.T]])


def ad(V):  # Kim (27)
    return np.block([[skew(V[:3]), np.zeros((3, 3))], [skew(V[3:]), skew(V[:3])]])


arm = qddot.load("puma560")
q, v = arm.random_state(0)
t = arm.trace("inverse_dynamics", q, v, np.ones(6))
print(t.table("V", "Vdot", "F", "tau"))

parents = dict(zip(arm.link_names, ("world", *arm.link_names), strict=False))
behind = np.zeros(6)  # the force that the link passes on to the one after it
for link in reversed(arm.link_names):
    parent, X, S, I, V = parents[link], Ad_inv(t.T[link]), t.S[link], t.I[link], t.V[link]
    checks = {
        "(37) velocity": (V, X @ t.V[parent] + S @ t.v[link]),
        "(41) acceleration": (t.Vdot[link], X @ t.Vdot[parent] + ad(V) @ S @ t.v[link] + S @ t.a[link]),
        "(42) force": (t.F[link], I @ t.Vdot[link] - ad(V).T @ I @ V + behind),
    }
    for equation, (left, right) in checks.items():
        assert np.allclose(left, right, atol=1e-12), (link, equation)
        print(f"{link:<15} {equation:<18} both sides agree to {np.abs(left - right).max():.0e}")
    behind = X.T @ t.F[link]
