"""What is published: the wheel and the source archive, built without a network."""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import fermata

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The directory of the built files."""
    source = tmp_path_factory.mktemp("package") / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns("__pycache__", "*.go", ".mypy_cache", "dist", "build"))
    subprocess.run([sys.executable, "-m", "build", "--no-isolation"], cwd=source, check=True, stdin=subprocess.DEVNULL,
                   capture_output=True, timeout=120)
    return source / "dist"


def modules():
    files = (ROOT / "fermata").rglob("*")
    return {p.relative_to(ROOT).as_posix() for p in files if p.suffix in (".py", ".pyi", ".typed")}


def test_wheel(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"fermata-{fermata.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
        metadata = archive.read(f"fermata-{fermata.__version__}.dist-info/METADATA").decode()
        archive.extractall(tmp_path)
    assert names == modules() | {"fermata/py.typed"}
    for line in ("Requires-Python: >=3.11", "Requires-Dist: grpcio (>=1.51)", "Requires-Dist: protobuf (>=4.21)",
                 "License-File: LICENSE"):
        assert line in metadata.splitlines()
    code = "import fermata, fermata.v1; print(fermata.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd="/", env={"PYTHONPATH": str(tmp_path)}, check=True,
                          capture_output=True, text=True)
    assert done.stdout.startswith(str(tmp_path))


def test_source_archive(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {n.partition("/")[2] for n in files.getnames()}
    assert modules() < names
    assert {"README.md", "LICENSE", "pyproject.toml", "examples/worker.py", "tests/test_worker.py"} < names
    assert not any(n.endswith((".go", ".pyc")) for n in names)


def test_links_of_the_readme_work_elsewhere():
    """PyPI shows the README without the files beside it."""
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert links and all(link.startswith("https://") for link in links)


def test_licence_is_that_of_the_project():
    assert (ROOT / "LICENSE").read_bytes() == (ROOT.parents[1] / "LICENSE").read_bytes()
