"""fedbench init: a folder to begin a study in, with an idea of one's own or on data of one's own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from fedbench.commands.choices import FilePath
from fedbench.commands.terminal import say
from fedbench.data.tables import FORMATS
from fedbench.errors import UserError
from fedbench.scaffold import filled, kinds, put, shipped_schema, study, suite_name, with_schema
from fedbench.scaffold.own_data import OwnData, TableColumns, dealing, images_in, texts_in
from fedbench.words import command_line, counted, on_a_line, quoted, shortened, suggestion

MOST_DOMAINS = 12  # whose clients are listed
BACKBONES = {"image": ("micro_vit", 12), "text": ("minilm_l6", 6)}  # by what data are, and its layers
# What a suite says besides, by the words of its template.
WORDS = {
    "image": {
        "DESCRIPTION": "Images of my own",
        "OTHERS": "0.4 million parameters. With a GPU: {name: vit_base_patch16_224, pretrained: true}, no image_size",
        "STEPS": "10, batch_size: 32",
    },
    "text": {
        "DESCRIPTION": "Texts of my own",
        "OTHERS": "pip install 'fedbench-heft[minilm]'. With a GPU: {name: hf, model: roberta-base}, of 12 layers",
        "STEPS": "5, batch_size: 16",
    },
}


@click.command()
@click.argument("folder", type=FilePath(), required=False)
@click.option(
    "--kind", default="allocation", metavar="KIND", help="The kind of your idea: allocation, method, metric, ..."
)
@click.option(
    "--images",
    metavar="DIR|TABLE",
    type=FilePath(),
    help="Write a suite for your images: a folder with one for each class, or a table with their paths.",
)
@click.option("--texts", metavar="FILE", type=FilePath(), help="Write a suite for a CSV, TSV, JSONL or Parquet file.")
@click.option(
    "--text", metavar="COLUMN", multiple=True, help="The column with the texts; twice for pairs.  [default: text]"
)
@click.option("--path", metavar="COLUMN", help="The column with the paths of images.  [default: path]")
@click.option("--label", metavar="COLUMN", help="The column with the classes.  [default: label]")
@click.option("--domain", metavar="COLUMN", help="The column with the domains.  [default: domain, if there is one]")
@click.option("--clients", metavar="N", type=click.IntRange(min=1), help="How many clients the data are dealt to.")
def init(
    folder: str | None,
    kind: str,
    images: str | None,
    texts: str | None,
    text: tuple[str, ...],
    path: str | None,
    label: str | None,
    domain: str | None,
    clients: int | None,
) -> None:
    """Write FOLDER with a suite, a file with your own allocation or another KIND of component, and a README of five
    lines: a study that runs as it is, in about a minute. With --images or --texts, write a suite for your data instead;
    then FOLDER is named after the data by default. Nothing is overwritten.

    \b
    fedbench init my_study
    cd my_study && fedbench run suite.yaml --plugin my_allocation.py

    \b
    fedbench init my_study --kind method
    fedbench run quickstart --plugin my_study/my_method.py --add my_method

    \b
    fedbench init --images pictures --clients 6
    fedbench run pictures_study/suite.yaml

    \b
    fedbench init --images scans.csv --label diagnosis --domain hospital
    fedbench run scans_study/suite.yaml

    \b
    fedbench init --texts reviews.csv --label stars
    fedbench run reviews_study/suite.yaml
    """
    if texts is None and text:
        raise UserError("--text is a column of --texts FILE")
    if images is None and path:
        raise UserError("--path is a column of --images TABLE")
    if texts is None and images is None and (label or domain):
        raise UserError("--label and --domain are columns of --texts FILE or --images TABLE")
    if images is not None and texts is not None:
        raise UserError("give --images DIR or --texts FILE; a suite has one data set")
    if len(text) > 2:
        raise UserError("--text: a column of texts, or two of pairs")
    if images is not None:
        given = TableColumns((path,) if path else (), label, domain) if path or label or domain else None
        _on_own(images_in(Path(images), given), Path(images), folder, clients)
    elif texts is not None:
        _on_own(texts_in(Path(texts), TableColumns(text, label, domain)), Path(texts), folder, clients)
    else:
        _own_idea(folder, kind, clients)


def _own_idea(folder: str | None, kind: str, clients: int | None) -> None:
    if folder is None:
        raise UserError("name the folder to write, or --images DIR, or --texts FILE")
    if clients is not None:
        raise UserError("--clients is for --images DIR and --texts FILE")
    if Path(folder).suffix.lower() in FORMATS:
        raise UserError(
            f"{folder} is called as a table is: --texts {quoted(folder)} writes a suite on its texts, and --images on "
            "the images that it names"
        )
    if kind not in kinds():
        raise UserError(f"--kind: there is no {kind!r}{suggestion(kind, kinds(), 'kinds are')}")
    put(study(kind, _name_of(folder)), Path(folder))
    run = kinds()[kind].run.replace("NAME", f"my_{kind}")
    say(
        f"{folder} has a suite, my_{kind}.py and a README. Next:\n"
        f"  cd {quoted(folder)}\n"
        f"  fedbench plugins check my_{kind}.py\n"
        f"  {run} --plugin my_{kind}.py"
    )


def _name_of(folder: str) -> str:
    if not (name := suite_name(folder)):
        raise UserError(f"{folder}: a study is called after its folder, and this has no letter that a suite can have")
    return name


def _on_own(data: OwnData, path: Path, folder: str | None, clients: int | None) -> None:
    """Write a suite on data that lie at `place`, and say what it chose."""
    backbone, layers = BACKBONES[data.noun]
    dealt = dealing(data, clients, layers)
    home = Path(folder or f"{_name_of(str(path.with_suffix('') if path.is_file() else path))}_study")
    root = os.path.relpath(data.settings["root"], home)
    suite = str(home / "suite.yaml")
    words = {
        **WORDS[data.noun],
        "PLACE": on_a_line(quoted(suite)),
        "ABOUT": on_a_line(data.about),
        "STUDY": _name_of(str(home)),
        "CLIENTS": counted(len(dealt.capacities), "client"),
        "BACKBONE": backbone,
        "DATA": json.dumps({**data.settings, "root": root, "partition": dealt.partition}, ensure_ascii=False),
        "CAPACITIES": json.dumps(dealt.capacities),
        "LAYERS": str(layers),
    }
    put(with_schema(filled("own_suite", words), shipped_schema().read_bytes()), home)
    say(f"{path} has {data.about}.")
    own = [f"{name} {', '.join(map(str, capacities))}" for name, capacities in dealt.by_domain.items()]
    listed = 1 < len(own) <= MOST_DOMAINS
    held = "; ".join(own) if listed else shortened([str(L_n) for L_n in dealt.capacities])
    for line in (*data.remarks, dealt.about, f"each holds so many of {backbone}'s {layers} layers: {held}"):
        say(f"  {line}")
    say(f"{suite} compares five methods on them. Next:")
    if data.noun == "text":
        click.echo("  pip install 'fedbench-heft[minilm]'   # brings the backbone")
    say(f"  {command_line(['fedbench', 'run', suite])}")
