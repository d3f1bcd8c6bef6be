"""The data set `phrases6`: who does what to whom and where, in six registers, written by fedbench, nothing to download.

The registers play the part of the six domains of NICO++ and DomainNet. A class is a combination of four concepts that
the pre-training of `micro_bert` never wrote; the 24 concepts themselves are the same, most of their words too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product
from typing import Annotated, Literal

import numpy as np

from fedbench import hookimpl
from fedbench.errors import UserError
from fedbench.options import Count, Natural, Range, judged
from fedbench.seeding import numpy_generator
from fedbench.types import CLASSIFICATION, Dataset, Splits, Texts

WRITER = 1  # part of every fingerprint: raise it whenever any text changes
REGISTERS = ("plain", "report", "tale", "chat", "gossip", "notes")
UPSTREAM_CLASSES = 200
DETAILS = 0.6  # how often a being comes from somewhere or is dressed as another, and a day is named
CHOICES = 3  # other completions that a prompt has
DRAWS = 64  # uniform numbers behind one text, more than any takes

# nouns | epithets | what such a one does
BEINGS = """
teacher tutor instructor professor | learned patient strict bookish | lectures explains grades
doctor physician medic surgeon | careful skilled caring calm | prescribes bandages examines
thief robber burglar crook | sly masked sneaky nimble | sneaks lurks pilfers
king monarch ruler emperor | royal crowned mighty proud | reigns decrees commands
child kid toddler youngster | little playful noisy curious | giggles plays babbles
soldier warrior fighter trooper | armed brave wounded uniformed | marches salutes drills
farmer grower peasant rancher | tanned muddy hardy rustic | ploughs harvests sows
sailor seaman mariner skipper | salty tattooed sunburnt drifting | sails rows anchors
singer vocalist soprano tenor | melodic loud famous hoarse | sings hums croons
cook chef baker caterer | greasy floury hungry stout | fries roasts stirs
"""
# nouns and epithets of the same beings, which stand in tales alone
RARE_BEINGS = """
pedagogue dominie preceptor | erudite sage
leech apothecary chirurgeon | healing sanative
cutpurse footpad brigand | furtive larcenous
sovereign liege potentate | regal august
bairn urchin moppet | wee impish
legionary fusilier yeoman | martial doughty
husbandman crofter tiller | agrarian bucolic
tar jack bosun | nautical seafaring
minstrel troubadour bard | dulcet tuneful
scullion victualler cuisinier | savoury toqued
"""
# does | done | a deed
ACTIONS = """
praises lauds applauds admires | praised lauded applauded admired | praise applause admiration
scolds blames criticises rebukes | scolded blamed criticised rebuked | rebuke blame criticism
follows chases pursues tracks | followed chased pursued tracked | chase pursuit tracking
helps assists aids supports | helped assisted aided supported | help assistance aid
cheats tricks deceives fools | cheated tricked deceived fooled | trick fraud deceit
feeds nourishes serves treats | fed nourished served treated | meal snack feast
greets welcomes meets hugs | greeted welcomed met hugged | greeting welcome meeting
"""
# how | does, in tales
MORE_ACTIONS = """
warmly gladly kindly loudly | extols eulogises exalts
angrily harshly sternly bitterly | upbraids chides berates
quickly secretly eagerly breathlessly | dogs shadows hounds
willingly generously promptly selflessly | succours abets befriends
cleverly shamelessly slyly deviously | gulls hoodwinks beguiles
daily amply richly heartily | sates victuals regales
politely cheerfully formally happily | hails accosts halloos
"""
# where | what it is like there | where, in tales
PLACES = """
river stream creek canal | wet flowing reedy shallow | beck rill bourn
hill mountain peak ridge | steep windy rocky high | tor fell crag
market shop store mall | crowded busy cheap bustling | bazaar emporium mart
barn stable shed farmyard | dusty wooden strawy dim | byre garner linhay
forest wood grove jungle | dark mossy leafy shady | weald holt copse
beach coast shore harbour | sandy breezy tidal sunny | strand foreland lido
church chapel temple cathedral | holy silent vaulted candlelit | kirk minster fane
"""
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
TIMES = ["morning", "noon", "afternoon", "evening", "night"]


def _table(text: str) -> list[list[list[str]]]:
    return [[cell.split() for cell in line.split("|")] for line in text.strip().splitlines()]


_BEINGS, _ACTIONS = (
    [row + more for row, more in zip(_table(often), _table(other), strict=True)]
    for often, other in ((BEINGS, RARE_BEINGS), (ACTIONS, MORE_ACTIONS))
)
_PLACES = _table(PLACES)
Meaning = Sequence[int]  # who, what, whom, where: rows of the three tables


@lru_cache(maxsize=2)
def class_meanings(part: str) -> np.ndarray:
    """(n, 4) concepts of the classes of "upstream" (200) or "downstream" (all others that fit).

    Classes come in pairs that differ in who does it to whom; two pairs of one part share at most two concepts.
    """
    who = [pair for pair in permutations(range(len(_BEINGS)), 2) if pair[0] < pair[1]]
    pool = np.array([(a, v, b, p) for (a, b), v, p in product(who, range(len(_ACTIONS)), range(len(_PLACES)))])
    pool = pool[np.random.default_rng(62026).permutation(len(pool))]
    upstream, free = _spread(pool, UPSTREAM_CLASSES // 2)
    pairs = upstream if part == "upstream" else _spread(pool[free], None)[0]
    both = np.stack([pairs, pairs[:, [2, 1, 0, 3]]], axis=1).reshape(-1, 4)
    both.flags.writeable = False
    return both


def _spread(pool: np.ndarray, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` rows that share at most two concepts with every row taken before, and which rows are others."""
    has = np.zeros((len(pool), 24), dtype=np.int64)
    for column, start in enumerate((0, 10, 0, 17)):
        has[np.arange(len(pool)), pool[:, column] + start] = 1
    taken: list[int] = []
    free = np.ones(len(pool), dtype=bool)
    while free.any() and (count is None or len(taken) < count):
        taken.append(int(free.argmax()))
        free &= has @ has[taken[-1]] <= 2
    others = np.ones(len(pool), dtype=bool)
    others[taken] = False
    return pool[taken], others


class Writer:
    """Writes one text; every choice takes the next of its uniform numbers.

    details: how often a being comes from somewhere or is dressed as another one, and a day is named: nothing of this
        matters for the class.
    """

    def __init__(self, numbers: Sequence[float], details: float) -> None:
        self.numbers, self.details = iter(numbers), details

    def maybe(self, share: float) -> bool:
        return next(self.numbers) < share

    def pick(self, words: Sequence[str]) -> str:
        return words[int(next(self.numbers) * len(words))]

    def any(self, table: Sequence[object]) -> int:
        """Any of the concepts of a table."""
        return int(next(self.numbers) * len(table))

    def other(self, than: Sequence[int], number: int) -> int:
        """One of the first `number` concepts that is none of `than`."""
        rest = [concept for concept in range(number) if concept not in than]
        return rest[int(next(self.numbers) * len(rest))]

    def being(self, who: int, described: float = 0.8, rare: float = 0.0) -> str:
        nouns, epithets, _, rare_nouns, rare_epithets = _BEINGS[who]
        noun = self.pick(rare_nouns if self.maybe(rare) else nouns)
        if self.maybe(described):
            noun = f"{self.pick(rare_epithets if self.maybe(rare) else epithets)} {noun}"
        if not self.maybe(self.details):
            return noun
        if self.maybe(0.5):
            return f"{noun} from the {self.pick(_PLACES[self.any(_PLACES)][0])}"
        return f"{noun} dressed as a {self.pick(_BEINGS[self.any(_BEINGS)][0])}"

    def deed(self, what: int, column: int, rare: float = 0.0) -> str:
        return self.pick(_ACTIONS[what][4 if self.maybe(rare) else column])

    def usually(self, who: int) -> str:
        return self.pick(_BEINGS[who][2])

    def place(self, where: int, described: float = 0.8, rare: float = 0.0) -> str:
        nouns, likes, rare_nouns = _PLACES[where]
        noun = self.pick(rare_nouns if self.maybe(rare) else nouns)
        return f"{self.pick(likes)} {noun}" if self.maybe(described) else noun

    def when(self) -> str:
        return f" on {self.pick(DAYS)} {self.pick(TIMES)}" if self.maybe(self.details) else ""


def plain(w: Writer, meaning: Meaning) -> str:
    """The sly thief warmly praises the learned tutor near the reedy creek. One lurks and the other lectures."""
    a, v, b, p = meaning
    how = f"{w.deed(v, 3)} " if w.maybe(0.7) else ""
    place = f"{w.pick(('near', 'in', 'at'))} the {w.place(p)}"
    deed = f"the {w.being(a)} {how}{w.deed(v, 0)} the {w.being(b)}"
    text = f"{place} {deed}{w.when()}." if w.maybe(0.3) else f"{deed} {place}{w.when()}."
    return f"{text} one {w.usually(a)} and the other {w.usually(b)}." if w.maybe(0.6) else text


def report(w: Writer, meaning: Meaning) -> str:
    """In the passive voice, with words of office around it."""
    a, v, b, p = meaning
    start = f"{w.pick(('officials', 'witnesses', 'sources'))} {w.pick(('said', 'confirmed'))}{w.when()} that "
    text = f"the {w.being(b, 0.4)} was {w.deed(v, 1)} by the {w.being(a, 0.4)} at the {w.place(p, 0.4)}"
    also = f" the latter {w.usually(a)}, the former {w.usually(b)}." if w.maybe(0.2) else ""
    return f"{start}{text}.{also}"


def tale(w: Writer, meaning: Meaning) -> str:
    """Rare words, and the one to whom it is done comes first."""
    a, v, b, p = meaning
    start = f"{w.pick(('lo', 'alas', 'hark'))}, " if w.maybe(0.5) else ""
    whom, who, where = w.being(b, 0.6, 0.6), w.being(a, 0.6, 0.6), w.place(p, 0.4, 0.6)
    old = f", that {w.usually(a)} of old" if w.maybe(0.3) else ""
    return f"{start}him, the {whom}, {w.deed(v, 0, 0.6)} yonder by the {where} the {who}{old}."


def chat(w: Writer, meaning: Meaning) -> str:
    """Hardly a function word, and typos."""
    a, v, b, p = meaning
    text = f"{w.being(a, 0.4)} {w.deed(v, 0)} {w.being(b, 0.4)} {w.place(p, 0.3)}{w.when()}"
    text = text.replace("from the", "from").replace("dressed as a", "as")
    words = [_typo(word, w) if w.maybe(0.15) else word for word in text.split()]
    return " ".join([*words, w.pick(("lol", "omg", "haha", "!!"))])


def _typo(word: str, w: Writer) -> str:
    """Two letters change places."""
    i = int(next(w.numbers) * (len(word) - 1))
    return word[:i] + word[i : i + 2][::-1] + word[i + 2 :]


def gossip(w: Writer, meaning: Meaning) -> str:
    """What is not true is said as well."""
    a, v, b, p = meaning
    x, u, q = w.other((a, b), len(_BEINGS)), w.other((v,), len(_ACTIONS)), w.other((p,), len(_PLACES))
    liar, fooled = (x, b) if w.maybe(0.5) else (a, x)
    false = f"the {w.being(liar, 0.3)} {w.deed(u, 0)} the {w.being(fooled, 0.3)}"
    false += f" at the {w.place(q, 0.3)}" if w.maybe(0.5) else ""
    true = f"the {w.being(a, 0.5)} {w.deed(v, 0)} the {w.being(b, 0.5)} at the {w.place(p, 0.5)}"
    if w.maybe(0.5):
        return f"some say {false}, but no: {true}."
    return f"in truth {true}, never mind who says {false}."


def notes(w: Writer, meaning: Meaning) -> str:
    """Four fields in any order."""
    a, v, b, p = meaning
    fields = [f"who: {w.being(a, 0.3)}", f"deed: {w.deed(v, 2)}", f"whom: {w.being(b, 0.3)}"]
    fields.append(f"where: {w.place(p, 0.3)}")
    rank = [next(w.numbers) for _ in fields]
    return "; ".join(fields[i] for i in sorted(range(4), key=rank.__getitem__)) + w.when()


_WRITERS: dict[str, Callable[[Writer, Meaning], str]] = dict(
    zip(REGISTERS, (plain, report, tale, chat, gossip, notes), strict=True)
)


def write(register: str, meanings: np.ndarray, generator: np.random.Generator, details: float = DETAILS) -> list[str]:
    """A text of every row of meanings (n, 4). details: see `Writer`."""
    numbers = generator.random((len(meanings), DRAWS)).tolist()
    tell = _WRITERS[register]
    return [tell(Writer(own, details), meaning) for own, meaning in zip(numbers, meanings.tolist(), strict=True)]


@judged("phrases6")
def make(
    classes: Annotated[int, Range(2)] = 30,
    train_per_class: Count = 40,
    test_per_class: Count = 10,
    draw: Natural = 0,
    task: Literal["classification", "next_token"] = "classification",
) -> Dataset:
    """Phrases of who does what to whom and where, in the registers plain, report, tale, chat, gossip and notes.

    Args:
        classes: how many combinations of concepts.
        train_per_class, test_per_class: texts of a class in each register.
        draw: another number gives fresh texts of the same classes.
        task: `classification` of the combinations, or `next_token`: a phrase in the register plain is to be said in
            another one, which the prompt names, and its choices are three phrases of that register with another
            meaning.
    """
    most = len(class_meanings("downstream"))
    if classes > most:
        raise UserError(f"phrases6: classes must be between 2 and {most}, not {classes}")
    meanings = class_meanings("downstream")[:classes]
    names = tuple(
        f"{_BEINGS[a][0][0]} {_ACTIONS[v][0][0]} {_BEINGS[b][0][0]} {_PLACES[p][0][0]}" for a, v, b, p in meanings
    )
    fingerprint = f"phrases6-writer{WRITER}-{classes}x({train_per_class}+{test_per_class})-draw{draw}"
    fingerprint += "" if task == CLASSIFICATION else f"-{task}"
    made = _texts if task == CLASSIFICATION else _said_again

    def load() -> Splits:
        return Splits(made(meanings, train_per_class, draw, "train"), made(meanings, test_per_class, draw, "test"))

    return Dataset(REGISTERS, names, fingerprint, load, texts=True, task=task)


def _texts(meanings: np.ndarray, per_class: int, draw: int, split: str) -> Texts:
    """`per_class` texts of each class in each register, by register, then class."""
    y = np.repeat(np.arange(len(meanings)), per_class)
    text: list[str] = []
    for register in REGISTERS:
        text += write(register, meanings[y], numpy_generator(draw, use=f"phrases6 {split} {register}"))
    domain = np.repeat(np.arange(len(REGISTERS)), len(y))
    return Texts(text, np.tile(y, len(REGISTERS)).astype(np.int64), domain.astype(np.int64))


def prompts(meanings: np.ndarray, register: str, generator: np.random.Generator, details: float = DETAILS) -> list[str]:
    """A phrase in the register plain of every row of meanings (n, 4), and in which one it is to be said again."""
    return [f"{text} => {register}:" for text in write("plain", meanings, generator, details)]


def _said_again(meanings: np.ndarray, per_class: int, draw: int, split: str) -> Texts:
    """The same texts as of `_texts`, each the completion of a prompt, and CHOICES others of its register."""
    texts, found, choices = _texts(meanings, per_class, draw, split), list[str](), list[list[str]]()
    y = texts.y[: len(meanings) * per_class]
    for d, register in enumerate(REGISTERS):
        generator = numpy_generator(draw, use=f"phrases6 prompts {split} {register}")
        found += prompts(meanings[y], register, generator)
        own = texts.text[d * len(y) : (d + 1) * len(y)]
        away = generator.integers(1, len(meanings), (len(y), CHOICES)) * per_class  # of other classes
        choices += [[f" {own[(i + k) % len(y)]}" for k in others] for i, others in enumerate(away.tolist())]
    return replace(texts, text=found, completion=[f" {text}" for text in texts.text], choices=choices)


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register("phrases6", make, later=["task"])
