"""The readers of stories, paths and characters: hand-made files, the real files' counts, and broken files."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goru.lab import data as datasets
from goru.lab.data.generated import graphs, small_world, text
from goru.lab.data.readers import characters, paths, stories
from goru.lab.data.readers.characters import characters as as_characters
from goru.lab.data.readers.lines import LONGEST_LINE, FormatError, numbered
from goru.lab.tasks.babi import GENERATED_TASKS
from tests.lab.attempts import attempt
from tests.lab.real_data import needs

PARSERS = {"stories": stories.parse, "paths": paths.parse, "characters": characters.parse}

STORY = b"""1 Mary went to the kitchen.
2 John took the milk there.
3 Where is Mary? \tkitchen\t1
4 Mary moved to the garden.
5 What do they carry?\tMilk,Football\t2 4
1 Anna slept.
2 Who slept?\tAnna\t1
"""


class TestStories:
    def test_by_hand(self) -> None:
        first, second, third = stories.parse(STORY, "story")
        assert first.statements == (
            "mary",
            "went",
            "to",
            "the",
            "kitchen",
            ".",
            "john",
            "took",
            "the",
            "milk",
            "there",
            ".",
        )
        assert first.question == ("where", "is", "mary", "?")
        assert (first.answer, first.supporting) == ("kitchen", (1,))
        assert len(second.statements) == 18
        assert (second.answer, second.supporting) == ("milk,football", (2, 4))
        assert third.statements == ("anna", "slept", ".")

    @pytest.mark.parametrize(
        ("line", "match"),
        [
            (b"Mary went home.", "line 3: should begin with a number"),
            (b"5 Mary went home.", "line 3: line 5 of a story follows line 2"),
            (b"3 ", "line 3: an empty statement"),
            (b"3 Where is Mary?\tkitchen", "line 3: a question should have 3 columns, this has 2"),
            (b"3 Where is Mary?\tkitchen\t1\t2", "line 3: a question should have 3 columns, this has 4"),
            (b"3 Where is Mary?\tkitchen\tone", "line 3: 'one' should be numbers of statements"),
            (b"3 Where is Mary?\tkitchen\t7", "line 3: '7' should be numbers of statements"),
            (b"3 Where is Mary?\t \t1", "line 3: a question needs"),
            (b"1 Where is Mary?\tkitchen\t", "line 3: a question needs"),
            (b"3 \xff\xfe", "line 3: not text in UTF-8"),
            (b"3 a\x00b", r"line 3: the character '\\x00' is not allowed"),
            (b"3 " + b"x" * LONGEST_LINE, f"line 3: {LONGEST_LINE + 2} bytes long"),
            (b"99999999999999999999 x", "line 3: should begin with a number"),
        ],
    )
    def test_errors_name_file_and_line(self, line: bytes, match: str) -> None:
        with pytest.raises(FormatError, match=rf"^story, {match}"):
            stories.parse(b"1 Mary went out.\n2 John sat.\n" + line + b"\n", "story")

    def test_a_file_without_questions(self) -> None:
        for content in (b"", b"1 Mary went out.\n"):
            with pytest.raises(FormatError, match=r"^story: holds no question"):
                stories.parse(content, "story")

    @needs("babi")
    def test_real(self) -> None:
        babi = datasets.dataset("babi")
        names = [part.name for part in babi.parts]
        counts = {name: len(stories.parse(c, name)) for name, c in datasets.read(babi, names).items()}
        assert counts == dict.fromkeys(names, 1000)
        assert len(counts) == 40


class TestPaths:
    edges = " ".join(f"n{k} e1 n{k % 9 + 1} eol" for k in (1, 2, 3, 4, 5, 6, 7, 8, 9) * 2)

    def line(self, end: str) -> bytes:
        return f"{self.edges} {end}\n".encode()

    def test_by_hand(self) -> None:
        (example,) = paths.parse(self.line("q1 n1 n3 ans 1 2 3"), "paths")
        assert example.tokens[:8].tolist() == [0, 9, 1, 10, 1, 9, 2, 10]
        assert example.tokens[-4:].tolist() == [11, 0, 2, 12]
        assert example.path == (0, 1, 2)

    @pytest.mark.parametrize(
        ("end", "match"),
        [
            ("q1 n1 n3", "should begin with 76 tokens, has 75"),
            ("q1 n1 n3 ans", "the path should be 2 to 9 nodes"),
            ("q1 n1 n3 ans 1 2 3 4 5 6 7 8 9 1", "the path should be 2 to 9 nodes"),
            ("q1 n1 n3 ans 1 22 3", "the path should be 2 to 9 nodes"),
            ("q1 n1 n3 ans 1 2 4", "does not lead from the first"),
            ("q1 n1 n3 ans 1 2 2 3", "does not lead from the first"),
            ("q2 n1 n3 ans 1 2 3", "'q2' cannot be word 73"),
            ("q1 e1 n3 ans 1 2 3", "'e1' cannot be word 74"),
            ("q1 n1 n10 ans 1 2 3", "'n10' cannot be word 75"),
        ],
    )
    def test_errors_name_file_and_line(self, end: str, match: str) -> None:
        with pytest.raises(FormatError, match=f"^paths, line 2: .*{match}"):
            paths.parse(self.line("q1 n1 n3 ans 1 2 3") + self.line(end), "paths")

    @needs("shortest_path")
    def test_real(self) -> None:
        one = datasets.dataset("shortest_path")
        lengths = collections.Counter()
        for name, content in datasets.read(one, [part.name for part in one.parts]).items():
            examples = paths.parse(content, name)
            assert len(examples) == (50 if name.endswith(".val") else 1000 if "/test/" in name else 950)
            lengths.update(len(example.path) for example in examples)
        assert lengths == {3: 16096, 4: 3904}


class TestCharacters:
    def test_by_hand(self) -> None:
        assert characters.parse(b"a _ < u n k > \n \n b \n ", "text") == "a_<unk>\n\nb\n"
        assert characters.parse(as_characters(" no it was \n but n't\n").encode(), "text") == "no_it_was\nbut_n't\n"

    @pytest.mark.parametrize(
        ("content", "match"),
        [
            (b"", "line 1: the file should end"),
            (b"a b", "line 1: the file should end"),
            (b"a b \n c d", "line 2: the file should end"),
            (b"a b \n cd \n ", "line 2: every character"),
            (b"a b \nc d \n ", "line 2: every character"),
            (b"a b \n c  d \n ", "line 2: every character"),
            (b"a b \n   c \n ", "line 2: a space between words"),
            (b"a b \n c \x00 \n ", r"line 2: the character '\\x00'"),
        ],
    )
    def test_errors_name_file_and_line(self, content: bytes, match: str) -> None:
        with pytest.raises(FormatError, match=f"^text, {match}"):
            characters.parse(content, "text")

    @needs("ptb")
    def test_real(self) -> None:
        one = datasets.dataset("ptb")
        texts = {name: characters.parse(c, name) for name, c in datasets.read(one, [p.name for p in one.parts]).items()}
        counts = [(len(content), len(set(content))) for content in texts.values()]
        assert counts == [(5_017_482, 50), (393_042, 50), (442_423, 48)]
        train, valid, test = map(set, texts.values())
        assert valid | test <= train


class TestGenerated:
    """What the project generates is read by the same code; its statistics are as stated."""

    def test_graphs(self) -> None:
        examples = paths.parse(graphs.write(4000, np.random.default_rng(0)), "graphs")
        three = np.mean([len(example.path) == 3 for example in examples])
        # 0.8002 by enumeration of all graphs; 4 deviations of the mean of 4000.
        assert abs(three - 0.8002) < 4 * np.sqrt(0.16 / 4000)
        assert {len(example.path) for example in examples} == {3, 4}
        for tokens, path in examples[:300]:
            statements = tokens[:72].reshape(18, 4)[:, [0, 2]]
            assert (statements[::2] == statements[1::2, ::-1]).all()  # each edge both ways, on neighboring lines
            edges = [(int(a), int(b)) for a, b in statements[::2]]
            assert len({frozenset(edge) for edge in edges}) == 9
            assert list(graphs.shortest_paths(edges, path[0], path[-1])) == [path]
            parts = self.components(edges)
            assert sorted(map(len, parts)) == [4, 5]

    @staticmethod
    def components(edges: list[tuple[int, int]]) -> list[set[int]]:
        parts: list[set[int]] = []
        for edge in edges:
            joined = set(edge).union(*(part for part in parts if part & set(edge)))
            parts = [part for part in parts if not part & set(edge)] + [joined]
        return parts

    @pytest.mark.parametrize("task", GENERATED_TASKS)
    def test_small_world(self, task: int) -> None:
        content = small_world.write(task, 500, np.random.default_rng(task))
        questions = stories.parse(content, "world")
        assert len(questions) == 500
        share = collections.Counter(question.answer for question in questions).most_common(1)[0][1] / 500
        assert share < {1: 0.25, 5: 0.25, 6: 0.6, 17: 0.6}[task]
        assert small_world.write(task, 500, np.random.default_rng(task)) == content

    def test_small_world_tells_the_truth(self) -> None:
        for task in (1, 6):
            for question in stories.parse(small_world.write(task, 300, np.random.default_rng(0)), "world"):
                sentences = " ".join(question.statements).split(" .")
                person = question.question[3 if task == 1 else 1]
                last = [sentence.split() for sentence in sentences if person in sentence.split()][-1]
                if task == 1:
                    assert last[-1] == question.answer
                else:
                    assert (last[-1] == question.question[-2]) == (question.answer == "yes")

    def test_small_world_gives_truly(self) -> None:
        """Task 5: nobody gives what they do not have, and the answer is in the last gift that fits the question."""
        for question in stories.parse(small_world.write(5, 300, np.random.default_rng(0)), "world"):
            owner: dict[str, str] = {}
            gifts: list[tuple[str, str, str]] = []
            for sentence in " ".join(question.statements).split(" .")[:-1]:
                match sentence.split():
                    case [person, "found", "the", thing]:
                        assert thing not in owner
                        owner[thing] = person
                    case [giver, _, "the", thing, "to", taker]:
                        assert owner[thing] == giver != taker
                        owner[thing] = taker
                        gifts.append((giver, thing, taker))
                    case walk:
                        assert walk[-1] in small_world.PLACES
            match question.question:
                case ("what", "did", giver, "give", "to", taker, "?"):
                    fitting = [thing for one, thing, other in gifts if (one, other) == (giver, taker)]
                case ("who", "gave", "the", asked, "to", taker, "?"):
                    fitting = [giver for giver, thing, other in gifts if (thing, other) == (asked, taker)]
                case ("who", "received", "the", asked, "?"):
                    fitting = [taker for _, thing, taker in gifts if thing == asked]
                case ("who", "gave", "the", asked, "?"):
                    fitting = [giver for giver, thing, _ in gifts if thing == asked]
                case other:
                    pytest.fail(f"an unknown question: {other}")
            assert fitting[-1] == question.answer

    def test_small_world_lies_truly(self) -> None:
        """Task 17, on graph paper: the things are put down one step apart, and compared by row or column."""
        answers = collections.Counter()
        for question in stories.parse(small_world.write(17, 400, np.random.default_rng(0)), "world"):
            first, second = (one.split() for one in " ".join(question.statements).split(" .")[:-1])
            column, row = {}, {}
            for words in (second, first):  # "the red cube lies north of the blue ball"
                thing, direction, anchor = " ".join(words[1:3]), words[4], " ".join(words[-2:])
                x, y = column.setdefault(anchor, 0), row.setdefault(anchor, 0)
                column[thing] = {"east": x + 1, "west": x - 1}.get(direction, x)
                row[thing] = {"north": y + 1, "south": y - 1}.get(direction, y)
            assert len(set(zip(column.values(), row.values(), strict=True))) == 3
            _, _, *one, _, direction, _, _, color, shape, _ = question.question
            one, other = " ".join(one), f"{color} {shape}"
            true = {
                "east": column[one] > column[other],
                "west": column[one] < column[other],
                "north": row[one] > row[other],
                "south": row[one] < row[other],
            }[direction]
            assert question.answer == ("yes" if true else "no")
            answers[question.answer] += 1
        assert min(answers.values()) > 100

    def test_text(self) -> None:
        written = characters.parse(text.write(20_000, np.random.default_rng(0)), "text")
        assert 20_000 <= len(written) < 20_200
        assert len(set(written)) == 25
        for sentence in written.splitlines():
            assert sentence.count("``") == sentence.count("''") <= 1


GOOD = {
    "stories": STORY,
    "paths": TestPaths().line("q1 n1 n3 ans 1 2 3") * 3,
    "characters": b"a _ b \n c d \n ",
}


@pytest.mark.parametrize("name", PARSERS)
class TestFuzz:
    """Whatever the bytes: values, or an error that names the file; never another exception."""

    def parse(self, name: str, content: bytes) -> None:
        parsed = attempt("file", lambda: PARSERS[name](content, "file"))
        assert parsed is None or parsed

    @given(content=st.binary(max_size=300))
    def test_binary(self, name: str, content: bytes) -> None:
        self.parse(name, content)

    @given(st.data())
    def test_changed(self, name: str, data: st.DataObject) -> None:
        """A good file, cut off, with a piece replaced."""
        good = GOOD[name]
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(good))] * 2)))
        piece = data.draw(st.binary(max_size=8) | st.sampled_from([b"\t", b"\n", b"\r\n", b" ", b"1 ", b"\x00"]))
        end = data.draw(st.integers(0, len(good)))
        self.parse(name, (good[:first] + piece + good[last:])[:end])

    @settings(max_examples=30)
    @given(
        words=st.lists(
            st.sampled_from(["n1", "e1", "eol", "q1", "ans", "1", "99", "\t", "a", "_", ".", "\n"]),
            max_size=200,
        )
    )
    def test_right_words_in_wrong_order(self, name: str, words: list[str]) -> None:
        self.parse(name, " ".join(words).encode())

    def test_huge_line(self, name: str) -> None:
        with pytest.raises(FormatError, match=r"line 1: .*bytes long|line 1: the file should end"):
            PARSERS[name](b"1 " + b"a " * 10**6, "file")


def test_lines() -> None:
    assert list(numbered(b"a\r\nb", "file")) == [(1, "a"), (2, "b")]
    assert list(numbered(b"", "file")) == []
    assert list(numbered(b"\n\n", "file")) == [(1, ""), (2, "")]
