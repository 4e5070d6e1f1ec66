"""A small world that writes stories with questions, in bAbI's file format.

Its logic is that of four of the bAbI tasks, its people, places and sentences are its own: 1 where somebody
is, 5 who gave what to whom, 6 yes or no about where somebody is, 17 how three things lie about.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

PEOPLE = ("Anna", "Boris", "Clara", "David", "Emma", "Felix")
PLACES = ("station", "harbour", "market", "library", "bakery", "park")
THINGS = ("key", "lamp", "letter", "basket")
SHAPES = ("cube", "ball", "cone", "ring")
COLORS = ("red", "blue", "green", "white")
MOVES = ("walked to", "hurried to", "strolled to", "came to")
GIVES = ("gave", "handed", "passed")

_AXES = {"north of": (0, 1), "south of": (0, -1), "east of": (1, 0), "west of": (-1, 0)}


def write(task: int, questions: int, rng: np.random.Generator) -> bytes:
    """A file with this many questions."""
    tell = {1: _whereabouts, 5: _gifts, 6: _yes_or_no, 17: _positions}[task]
    lines: list[str] = []
    asked = 0
    while asked < questions:
        for line in tell(rng):
            lines.append(line)
            asked += "\t" in line
            if asked == questions:
                break
    return ("\n".join(lines) + "\n").encode()


def _pick(rng: np.random.Generator, choices: tuple[str, ...], but: tuple[str, ...] = ()) -> str:
    left = [one for one in choices if one not in but]
    return left[rng.integers(len(left))]


class _Walks:
    """People who walk about; knows where everybody is, and since which line."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.where, self.line, self.lines = rng, {}, {}, []
        self.people = tuple(rng.permutation(PEOPLE)[:4])

    def say(self, text: str) -> None:
        self.lines.append(f"{len(self.lines) + 1} {text}")

    def move(self) -> None:
        person = _pick(self.rng, self.people)
        place = _pick(self.rng, PLACES, but=(self.where.get(person, ""),))
        self.where[person] = place
        self.say(f"{person} {_pick(self.rng, MOVES)} the {place}.")
        self.line[person] = len(self.lines)

    def asked(self) -> Iterator[str]:
        """Five people to ask about, each after two moves."""
        for _ in range(5):
            self.move()
            self.move()
            yield _pick(self.rng, tuple(self.where))


def _whereabouts(rng: np.random.Generator) -> list[str]:
    world = _Walks(rng)
    for person in world.asked():
        world.say(f"Which place is {person} at? \t{world.where[person]}\t{world.line[person]}")
    return world.lines


def _yes_or_no(rng: np.random.Generator) -> list[str]:
    world = _Walks(rng)
    for person in world.asked():
        right = rng.random() < 0.5
        place = world.where[person] if right else _pick(rng, PLACES, but=(world.where[person],))
        world.say(f"Is {person} at the {place}? \t{'yes' if right else 'no'}\t{world.line[person]}")
    return world.lines


def _gifts(rng: np.random.Generator) -> list[str]:
    world = _Walks(rng)
    owner: dict[str, str] = {}
    for _ in range(5):
        thing = _pick(rng, THINGS)
        giver = owner.get(thing) or _pick(rng, PEOPLE)
        if thing not in owner:
            world.say(f"{giver} found the {thing}.")
        if rng.random() < 0.5:
            world.move()
        taker = owner[thing] = _pick(rng, PEOPLE, but=(giver,))
        world.say(f"{giver} {_pick(rng, GIVES)} the {thing} to {taker}.")
        support = len(world.lines)
        if rng.random() < 0.5:
            world.move()
        question, answer = (
            (f"What did {giver} give to {taker}?", thing),
            (f"Who gave the {thing} to {taker}?", giver),
            (f"Who received the {thing}?", taker),
            (f"Who gave the {thing}?", giver),
        )[rng.integers(4)]
        world.say(f"{question} \t{answer}\t{support}")
    return world.lines


def _positions(rng: np.random.Generator) -> list[str]:
    """Three things, two statements, eight questions whose answer the statements settle."""
    colors, shapes = rng.permutation(COLORS), rng.permutation(SHAPES)
    a, b, c = (f"the {color} {shape}" for color, shape in zip(colors[:3], shapes[:3], strict=True))
    relations = tuple(_AXES)
    first, second = (relations[k] for k in rng.integers(4, size=2))
    opposite = tuple(-x for x in _AXES[first])
    if _AXES[second] == opposite:  # a and c would be at one place, or not to be told apart
        second = first
    lines = [f"1 {a.capitalize()} lies {first} {b}.", f"2 {b.capitalize()} lies {second} {c}."]
    place = {
        a: np.add(_AXES[first], _AXES[second]),
        b: np.array(_AXES[second]),
        c: np.zeros(2, dtype=int),
    }
    for _ in range(8):
        wanted = rng.random() < 0.5
        while True:
            one, other = map(str, rng.permutation([a, b, c])[:2])
            relation = _pick(rng, relations)
            if ((place[one] - place[other]) @ np.array(_AXES[relation]) > 0) == wanted:
                break
        support = "1" if c not in (one, other) else "2" if a not in (one, other) else "1 2"
        answer = "yes" if wanted else "no"
        lines.append(f"{len(lines) + 1} Does {one} lie {relation} {other}?\t{answer}\t{support}")
    return lines
