"""Which warp of a block has each operation at home: parts of like cost between which few values cross.

A value and its users are joined by edges that share a weight of 1. The graph is coarsened by joining neighbours, the
coarsest one is cut by growing parts from a seed, and on the way back to the finest one operations move to the part that has
most of their neighbours, as long as no part becomes too large (Karypis & Kumar 1998).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

_IMBALANCE = 1.05  # of the largest part to the mean
_COARSEST_NODES = 40  # of each part
_MAX_NODE_SHARE = 20  # a coarse node has at most this part of a part
_SEEDS = 8
_ROUNDS = 10  # on the coarsest graph
_FINER_ROUNDS = 4
_STALLED = 0.002  # of all nodes that move in a round: fewer are not worth another

Neighbours = list[dict[int, float]]


def clusters(users: Sequence[Sequence[int]], cost: Sequence[int], count: int) -> list[int]:
    """The part of each operation, given who uses its value, and what it costs."""
    levels, maps = _coarsened(_neighbours(users), list(cost), count)
    neighbours, weights = levels[-1]
    best, found = float("inf"), list[int]()
    for seed in range(_SEEDS):
        part = _grown(neighbours, weights, count, random.Random(seed))
        across = _refined(neighbours, weights, part, count, _ROUNDS)
        if across < best:
            best, found = across, part
    for (neighbours, weights), up in zip(reversed(levels[:-1]), reversed(maps), strict=True):
        found = [found[k] for k in up]
        _refined(neighbours, weights, found, count, _FINER_ROUNDS)
    return found


def _neighbours(users: Sequence[Sequence[int]]) -> Neighbours:
    found: Neighbours = [{} for _ in users]
    for k, own in enumerate(users):
        for x in own:
            found[k][x] = found[k].get(x, 0.0) + 1.0 / len(own)
            found[x][k] = found[x].get(k, 0.0) + 1.0 / len(own)
    return found


def _coarsened(
    neighbours: Neighbours, weights: list[int], count: int
) -> tuple[list[tuple[Neighbours, list[int]]], list[list[int]]]:
    """Graphs from the finest to the coarsest, and for each but the last the node of the next one that each became."""
    most, levels, maps = sum(weights) / count / _MAX_NODE_SHARE, [(neighbours, weights)], list[list[int]]()
    while len(weights) > _COARSEST_NODES * count:
        up = _joined(neighbours, weights, most)
        size = 1 + max(up)
        if size > 0.95 * len(weights):
            break
        coarse: Neighbours = [{} for _ in range(size)]
        heavier = [0] * size
        for k, own in enumerate(neighbours):
            heavier[up[k]] += weights[k]
            row = coarse[up[k]]
            for x, w in own.items():
                if up[x] != up[k]:
                    row[up[x]] = row.get(up[x], 0.0) + w
        neighbours, weights = coarse, heavier
        maps.append(up)
        levels.append((neighbours, weights))
    return levels, maps


def _joined(neighbours: Neighbours, weights: list[int], most: float) -> list[int]:
    """The number of each node's pair: nodes of few neighbours first, each with the one it is most tied to."""
    mate = [-1] * len(weights)
    for k in sorted(range(len(weights)), key=lambda k: len(neighbours[k])):
        if mate[k] >= 0:
            continue
        best, found = 0.0, k
        for x, w in neighbours[k].items():
            tie = w / (weights[x] * weights[k]) ** 0.5
            if mate[x] < 0 and tie > best and weights[x] + weights[k] <= most:
                best, found = tie, x
        mate[k], mate[found] = found, k
    up, size = [-1] * len(weights), 0
    for k, m in enumerate(mate):
        if up[k] < 0:
            up[k] = up[m] = size
            size += 1
    return up


def _grown(neighbours: Neighbours, weights: list[int], count: int, rng: random.Random) -> list[int]:
    """Parts that grow one after another, each from a random node, by what has most of its neighbours inside."""
    part, left = [-1] * len(weights), sum(weights)
    for p in range(count - 1):
        wanted, own, gain = left / (count - p), 0, dict[int, float]()
        while own < wanted:
            if gain:
                k = max(gain, key=gain.__getitem__)
                del gain[k]
            elif free := [k for k, x in enumerate(part) if x < 0]:
                k = rng.choice(free)
            else:
                break
            part[k] = p
            own += weights[k]
            for x, w in neighbours[k].items():
                if part[x] < 0:
                    gain[x] = gain.get(x, -0.5 * sum(neighbours[x].values())) + w
        left -= own
    return [count - 1 if p < 0 else p for p in part]


def _refined(neighbours: Neighbours, weights: list[int], part: list[int], count: int, rounds: int) -> float:
    """Moves nodes where that makes less cross, or parts more alike; the weight that crosses after that."""
    load, most = [0] * count, _IMBALANCE * sum(weights) / count
    for k, p in enumerate(part):
        load[p] += weights[k]
    for _ in range(rounds):
        moved = 0
        for k, own in enumerate(neighbours):
            a, tie = part[k], dict[int, float]()
            for x, w in own.items():
                tie[part[x]] = tie.get(part[x], 0.0) + w
            b = _better(a, tie, load, weights[k], most)
            if b != a:
                part[k] = b
                load[a] -= weights[k]
                load[b] += weights[k]
                moved += 1
        if moved < _STALLED * len(part):
            break
    return sum(w for k, own in enumerate(neighbours) for x, w in own.items() if part[k] != part[x]) / 2.0


def _better(a: int, tie: dict[int, float], load: list[int], weight: int, most: float) -> int:
    """The part where a node of part `a` belongs."""
    too_large = load[a] > most
    room = max(most, load[a] - 1) if too_large else most
    best, least = a, -float("inf") if too_large else 0.0
    for b, w in tie.items():
        if b == a or load[b] + weight > room:
            continue
        gain = w - tie.get(a, 0.0)
        if gain > least or (gain == least and best == a and load[a] - load[b] > weight):
            best, least = b, gain
    return best
