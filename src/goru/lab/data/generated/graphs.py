"""Random graphs with shortest-path questions: the distribution of Li et al. 2015.

A main graph of 5 nodes and a distractor of 4, not joined: each a ring whose edges are moved with
probability 0.5, redrawn until connected. The query is two nodes whose shortest path is unique and has at
least 3 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MAIN_NODES, DISTRACTOR_NODES = 5, 4
REWIRED = 0.5

Edges = list[tuple[int, int]]


def write(count: int, rng: np.random.Generator) -> bytes:
    """A file of examples in token form."""
    return "".join(_line(rng) for _ in range(count)).encode()


def _line(rng: np.random.Generator) -> str:
    edges, path = _question(rng)
    edges = edges + [(a + MAIN_NODES, b + MAIN_NODES) for a, b in ring_with_shortcuts(DISTRACTOR_NODES, rng)]
    label = rng.permutation(MAIN_NODES + DISTRACTOR_NODES) + 1
    statements = []
    for k in rng.permutation(len(edges)):
        a, b = (label[node] for node in edges[k])
        if rng.random() < 0.5:
            a, b = b, a
        statements.append(f"n{a} e1 n{b} eol n{b} e1 n{a} eol")
    nodes = [str(label[node]) for node in path]
    return f"{' '.join(statements)} q1 n{nodes[0]} n{nodes[-1]} ans {' '.join(nodes)}\n"


def _question(rng: np.random.Generator) -> tuple[Edges, tuple[int, ...]]:
    """A main graph and the path asked for."""
    while True:
        edges = ring_with_shortcuts(MAIN_NODES, rng)
        start, end = rng.choice(MAIN_NODES, 2, replace=False)
        paths = list(shortest_paths(edges, int(start), int(end)))
        if len(paths) == 1 and len(paths[0]) >= 3:
            return edges, paths[0]


def ring_with_shortcuts(nodes: int, rng: np.random.Generator) -> Edges:
    """A connected graph: a ring, each edge's end moved with probability 0.5, without doubles."""
    while True:
        joined: list[set[int]] = [{(k - 1) % nodes, (k + 1) % nodes} for k in range(nodes)]
        for a in range(nodes):
            b = (a + 1) % nodes
            free = [c for c in range(nodes) if c != a and c not in joined[a]]
            if rng.random() < REWIRED and free and b in joined[a]:
                c = free[rng.integers(len(free))]
                joined[a] ^= {b, c}
                joined[b].discard(a)
                joined[c].add(a)
        edges = [(a, b) for a in range(nodes) for b in joined[a] if a < b]
        if _connected(nodes, joined):
            return edges


def _connected(nodes: int, joined: list[set[int]]) -> bool:
    seen, ahead = {0}, [0]
    while ahead:
        new = joined[ahead.pop()] - seen
        seen |= new
        ahead.extend(new)
    return len(seen) == nodes


def shortest_paths(edges: Edges, start: int, end: int) -> Iterator[tuple[int, ...]]:
    """Every shortest path between two nodes."""
    paths: list[tuple[int, ...]] = [(start,)]
    while paths and all(path[-1] != end for path in paths):
        paths = [(*path, b) for path in paths for b in neighbors(edges, path[-1]) if b not in path]
    yield from (path for path in paths if path[-1] == end)


def neighbors(edges: Edges, node: int) -> list[int]:
    return [a + b - node for a, b in edges if node in (a, b)]
