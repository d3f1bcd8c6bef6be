"""fedbench init: a folder to begin a study in, with an idea of one's own or on images of one's own."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fedbench.data.image_files import SUFFIXES, TABLES
from fedbench.errors import UserError
from fedbench.scaffold import filled, kinds, put, shipped_schema, study, suite_name, with_schema
from fedbench.words import command_line, counted, on_a_line, quoted, shortened, suggestion

LAYOUT = "DIR/class/image.jpg or DIR/domain/class/image.jpg"
TEXTS = "for texts there is the data set `text_table` (`fedbench plugins show text_table`)"
LARGEST, SMALLEST = 12, 3  # capacities that are given to clients, of the 12 layers of `micro_vit`
EVENLY = 6  # clients of one domain, unless it is said how many
FOR_DIRICHLET = 25  # images for each client from which on classes are dealt unevenly


@click.command()
@click.argument("folder", type=click.Path(), required=False)
@click.option("--kind", default="allocation", metavar="KIND", help="What your idea is: allocation, method, metric, ...")
@click.option("--images", metavar="DIR", type=click.Path(), help="Write a suite on your images, one folder a class.")
@click.option("--clients", metavar="N", type=click.IntRange(min=1), help="How many clients they are dealt to.")
def init(folder: str | None, kind: str, images: str | None, clients: int | None) -> None:
    """Write FOLDER with a suite, an allocation or another KIND of component of your own in one file, and a README of
    five lines: a study that runs as it is, in about a minute. With --images write a suite on your images instead,
    FOLDER being DIR_study if it is not given. Nothing is overwritten.

    \b
    fedbench init my_study
    cd my_study && fedbench run suite.yaml --plugin my_allocation.py

    \b
    fedbench init my_study --kind method
    fedbench run quickstart --plugin my_study/my_method.py --add my_method

    \b
    fedbench init --images pictures --clients 6
    fedbench run pictures_study/suite.yaml
    """
    if images is not None:
        _on_images(Path(images), folder, clients)
        return
    if folder is None or clients is not None:
        raise UserError("--clients is for --images DIR" if folder else "name the folder to write, or --images DIR")
    if kind not in kinds():
        raise UserError(f"--kind: there is no {kind!r}{suggestion(kind, kinds(), 'kinds are')}")
    put(study(kind, _name_of(folder)), Path(folder))
    run = kinds()[kind].run.replace("NAME", f"my_{kind}")
    click.echo(
        f"{folder} has a suite, my_{kind}.py and a README. Next:\n"
        f"  cd {quoted(folder)}\n"
        f"  fedbench plugins check my_{kind}.py\n"
        f"  {run} --plugin my_{kind}.py"
    )


def _name_of(folder: str) -> str:
    if not (name := suite_name(folder)):
        raise UserError(f"{folder}: a study is called after its folder, and this has no letter that a suite can have")
    return name


def _on_images(images: Path, folder: str | None, clients: int | None) -> None:
    """Write the suite, and say what it chose."""
    tree = look(images)
    dealt = dealing(tree, clients)
    home = Path(folder or f"{_name_of(str(images))}_study")
    root = os.path.relpath(tree.root, home)
    data = {
        "name": "image_folder",
        "root": root,
        "image_size": 32,
        "normalize": "backbone",
        "partition": dealt.partition,
    }
    data |= {"domains": tree.domains} if tree.one_domain else {}
    data |= {"classes": tree.classes} if tree.left_out else {}
    place = str(home / "suite.yaml")
    words = {
        "PLACE": on_a_line(quoted(place)),
        "ABOUT": on_a_line(tree.about),
        "STUDY": _name_of(str(home)),
        "CLIENTS": counted(len(dealt.capacities), "client"),
        "DATA": json.dumps(data, ensure_ascii=False),
        "LAYERS": json.dumps(dealt.capacities),
    }
    put(with_schema(filled("images", words), shipped_schema().read_bytes()), home)
    click.echo(f"{images} has {tree.about}.")
    for line in (*tree.left_out, dealt.about, f"capacities, in layers of micro_vit's 12: {dealt.capacities}"):
        click.echo(f"  {line}")
    click.echo(f"{place} compares five methods on them. Next:\n  {command_line(['fedbench', 'run', place])}")


@dataclass(frozen=True)
class Tree:
    """What lies in a folder of images.

    Attributes:
        root: the folder that has the domains; that above DIR where DIR itself is the one domain.
        counts: images by domain and class, of classes that are taken.
        one_domain: whether DIR has classes and no domains.
        left_out: what is not taken, a sentence each.
    """

    root: Path
    counts: Mapping[str, Mapping[str, int]]
    one_domain: bool
    left_out: tuple[str, ...] = ()

    @property
    def domains(self) -> list[str]:
        return list(self.counts)

    @property
    def classes(self) -> list[str]:
        return list(next(iter(self.counts.values())))

    @property
    def about(self) -> str:
        """How many domains, classes and images there are."""
        images = sum(sum(found.values()) for found in self.counts.values())
        names = f" ({shortened(self.domains)})" if not self.one_domain else ""
        return (
            f"{counted(len(self.domains), 'domain')}{names}, {len(self.classes)} classes ({shortened(self.classes)}), "
            f"{counted(images, 'image')}"
        )


def look(folder: Path) -> Tree:
    """The domains and classes of a folder, by the names of files alone. Raises UserError for another layout."""
    if not folder.is_dir():
        raise UserError(_no_folder(folder))
    found = {name: _images(folder / name) for name in _folders(folder)}
    deeper = {name: {sub: _images(folder / name / sub) for sub in _folders(folder / name)} for name in found}
    domains = {name: {sub: n for sub, n in subs.items() if n} for name, subs in deeper.items()}
    domains = {name: subs for name, subs in domains.items() if subs}
    classes = {name: n for name, n in found.items() if n}
    if loose := _images(folder):
        raise UserError(f"{folder} has {counted(loose, 'image')} in no class; sort them into folders: {LAYOUT}")
    if classes and domains:
        one, other = next(iter(classes)), next(iter(domains))
        raise UserError(f"{folder}: {one} has images, and {other} has folders of them; sort all in one way: {LAYOUT}")
    if not classes and not domains:
        raise UserError(f"{folder} has no images in folders of folders; expected {LAYOUT}{_instead(folder)}")
    root = Path(os.path.abspath(folder))
    return _of_shared(root.parent, {root.name: classes}, True) if classes else _of_shared(root, domains, False)


def _of_shared(root: Path, counts: Mapping[str, Mapping[str, int]], one_domain: bool) -> Tree:
    """The tree of those classes of which every domain has two images, for training and test. Raises UserError."""
    known = dict.fromkeys(name for found in counts.values() for name in found)
    shared = [name for name in known if all(found.get(name, 0) >= 2 for found in counts.values())]
    others = sorted(set(known) - set(shared))
    if len(shared) < 2:
        what = f"only {shared[0]!r} has" if shared else "no class has"
        raise UserError(
            f"{root}: {what} two images in every domain, and two classes have to; there are {shortened(others)}"
        )
    left = (f"left out: {shortened(others)}, of which a domain has fewer than two images",) if others else ()
    return Tree(root, {name: {c: found[c] for c in sorted(shared)} for name, found in counts.items()}, one_domain, left)


def _no_folder(path: Path) -> str:
    if not path.exists():
        return f"--images {path}: there is no such folder"
    if path.suffix.lower() in TABLES:
        return f"--images {path} is a table, and images lie in a folder for each class; {TEXTS}"
    return f"--images {path} is a file; images lie in a folder for each class: {LAYOUT}"


def _instead(folder: Path) -> str:
    """What there is instead of images, if anything."""
    files = [Path(name) for _, _, names in os.walk(folder) for name in names]
    endings = Counter(file.suffix.lower() for file in files if file.suffix)
    if not endings:
        return ""
    texts = f"; {TEXTS}" if endings.keys() & TABLES else ""
    return f", and there are {', '.join(f'{n} {ending}' for ending, n in endings.most_common(3))}{texts}"


def _folders(folder: Path) -> list[str]:
    return sorted(one.name for one in os.scandir(folder) if one.is_dir() and not one.name.startswith("."))


def _images(folder: Path) -> int:
    names = (one.name for one in os.scandir(folder) if one.is_file() and not one.name.startswith("."))
    return sum(os.path.splitext(name)[1].lower() in SUFFIXES for name in names)


@dataclass(frozen=True)
class Dealing:
    """How images are dealt to clients, the layers that each can hold, and a sentence about it."""

    partition: dict[str, Any]
    capacities: list[int]
    about: str


def dealing(tree: Tree, clients: int | None) -> Dealing:
    """Clients of all domains, from the largest to the smallest in each. Raises UserError for a number that does not
    fit the domains."""
    D = len(tree.domains)
    N = clients or (D if D > 1 else EVENLY)
    if N % D:
        fit = f"{N - N % D} or {N - N % D + D}" if N > D else str(D)
        raise UserError(f"--clients {N}: {D} domains have equally many clients each; give {fit}")
    each, fewest = N // D, min(sum(found.values()) for found in tree.counts.values())
    if fewest < 2 * each:
        raise UserError(f"--clients {N}: a domain has {fewest} images, too few for {each} clients")
    about = f"{counted(each, 'client')} for each of {D} domains" if D > 1 else counted(each, "client")
    partition = {"name": "by_domain", "clients_per_domain": each}
    if each > 1 and fewest >= FOR_DIRICHLET * each:
        partition = {"name": "dirichlet", "alpha": 0.5, "clients_per_domain": each}
        about += ", whose classes differ (dirichlet, alpha 0.5)"
    steps = [round(LARGEST - (LARGEST - SMALLEST) * i / max(N - 1, 1)) for i in range(N)]
    return Dealing(partition, [steps[j * D + d] for d in range(D) for j in range(each)], about)
