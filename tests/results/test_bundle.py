"""A bundle for an appendix: what it holds, that it runs again, and what is refused."""

from __future__ import annotations

import zipfile

import pytest
from command import TINY, fedbench, run, write_suite

from fedbench.errors import UserError
from fedbench.results.bundle import unpack, write

MINE = """\
from fedbench import hookimpl
from fedbench.families.layerwise import layerwise

def mine(setup):
    return layerwise(setup, allocation='random')

@hookimpl
def fedbench_register_methods(register):
    register("mine", mine)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with results of a method of one's own, its file, and their bundle."""
    here = tmp_path_factory.mktemp("bundle")
    (here / "mine.py").write_text(MINE)
    write_suite(here, "fedra, mine")
    done = run("--plugin", "mine.py", cwd=here)
    assert done.exit_code == 0, done.output
    done = pack(here, "--plugin", TINY, "--plugin", "mine.py", "--with", "tiny.yaml")
    assert done.exit_code == 0 and "fedbench reproduce b.zip --trust-plugins" in done.output, done.output
    assert "packed" not in done.output, "nothing was left to pack"
    return here


def pack(here, *words):
    return fedbench("pack", "r", "--bundle", "-o", "b.zip", *words, cwd=here)


def test_it_has_tables_code_and_versions_and_no_models(made):
    with zipfile.ZipFile(made / "b.zip") as bundle:
        names = bundle.namelist()
        assert not any("state" in name for name in names)
        assert {"plugins/mine.py", "files/tiny.yaml", "results/tiny/index.json"} <= set(names)
        assert "torch==" in bundle.read("requirements.txt").decode()
        assert "fedbench reproduce b.zip --trust-plugins" in bundle.read("README.txt").decode()
    before = (made / "b.zip").read_bytes()
    assert pack(made, "--plugin", TINY, "--plugin", "mine.py", "--with", "tiny.yaml").exit_code == 0
    assert (made / "b.zip").read_bytes() == before, "equal contents are equal bundles"


def test_it_is_the_same_from_inside_the_folder_of_the_suite(made, tmp_path):
    words = ("pack", ".", "--bundle", "-o", tmp_path / "b.zip", "--plugin", TINY, "--plugin", made / "mine.py")
    done = fedbench(*words, "--with", made / "tiny.yaml", cwd=made / "r/tiny")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "b.zip").read_bytes() == (made / "b.zip").read_bytes()


def test_it_runs_again_elsewhere_and_every_cell_is_equal(made, tmp_path):
    (tmp_path / "b.zip").write_bytes((made / "b.zip").read_bytes())
    refused = fedbench("reproduce", "b.zip", cwd=tmp_path)
    assert refused.exit_code == 2 and "brings code that would run with your rights: mine.py" in refused.output
    assert not (tmp_path / "reproduced").exists()
    looked = fedbench("reproduce", "b.zip", "--no-run", cwd=tmp_path)  # runs none of its code, and so needs no trust
    assert looked.exit_code == 1 and "its code is not loaded" in looked.output and "mine.py" in looked.output
    done = fedbench("reproduce", "b.zip", "--trust-plugins", cwd=tmp_path)
    assert done.exit_code == 0 and "2 equal" in done.output, done.output
    assert "b.zip" in done.output


def test_code_that_is_not_given_or_has_changed_is_refused(made):
    assert "computed with mine.py, sha256:" in pack(made, "--plugin", TINY).output
    (made / "mine.py").write_text(MINE + "# later\n")
    done = pack(made, "--plugin", TINY, "--plugin", "mine.py")
    (made / "mine.py").write_text(MINE)
    assert done.exit_code == 2 and "--plugin mine.py is sha256:" in done.output


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["../evil.py"], "has no ../evil.py"),
        (["results/s/state.safetensors"], "has no results/s/state.safetensors"),
        (["plugins/../../x.py"], "has no plugins/../../x.py"),
        (["README.txt"], "no bundle of `fedbench pack`"),
        (["bundle.json"], "cannot be read as a bundle"),
    ],
)
def test_what_is_no_bundle_is_refused_and_nothing_is_written_outside(names, said, tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as bundle:
        for name in names:
            bundle.writestr(name, b"x")
    done = fedbench("reproduce", "b.zip", cwd=tmp_path)
    assert done.exit_code == 2 and said in " ".join(done.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["b.zip"]


def test_a_zip_that_is_none_is_refused(tmp_path):
    (tmp_path / "b.zip").write_bytes(b"PK no")
    done = fedbench("reproduce", "b.zip", cwd=tmp_path)
    assert done.exit_code == 2 and "cannot be read as a bundle" in done.output


def test_modules_that_a_plugin_imports_are_in_it_and_so_is_how_they_are_found(tmp_path):
    code = {"mine.py": {"mine.py": b"import helping", "helping.py": b""}}
    names = write(tmp_path / "b.zip", [], code, {}, [])
    assert {"plugins/mine.py", "plugins/helping.py"} <= set(names)
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        about = bundle.read("README.txt").decode()
    assert "PYTHONPATH=plugins fedbench reproduce results --plugin plugins/mine.py" in about
    folders, plugins = unpack(tmp_path / "b.zip", tmp_path / "there")
    assert (folders, [plugin.name for plugin in plugins]) == ([], ["mine.py"])


def test_a_damaged_bundle_is_refused(made, tmp_path):
    whole = (made / "b.zip").read_bytes()
    for at in range(40, len(whole), len(whole) // 40):
        (tmp_path / "b.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            unpack(tmp_path / "b.zip", tmp_path / f"at{at}")
        except UserError as error:
            assert "b.zip" in str(error)


def test_plugins_that_lie_outside_are_refused(tmp_path):
    for name in ("../outside.py", "missing.py"):
        with zipfile.ZipFile(tmp_path / "b.zip", "w") as bundle:
            bundle.writestr("bundle.json", f'{{"plugins": ["{name}"]}}')
            bundle.writestr("plugins/other.py", "")
        (tmp_path / "there").mkdir(exist_ok=True)
        (tmp_path / "there/outside.py").touch()
        with pytest.raises(UserError, match="names plugins that are not in it"):
            unpack(tmp_path / "b.zip", tmp_path / "there")
