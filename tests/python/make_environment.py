"""Installs the package as its users do, into a virtual environment without this repository.

    python tests/python/make_environment.py BUILD ENVIRONMENT

What `pip install --no-build-isolation .` sees is a clean copy of the repository: nothing of a build folder reaches it.
The sdist is made from that copy, unpacked and built as well. The compiler's cache, where there is one, serves both
builds, this time and the next.

torch is installed as well, from pip's indexes or cache, in the version that the build has: only a build without CUDA, of
a tenth the size. Where there is none to be had, the environment borrows the torch of this Python, and says so.
"""

import importlib.metadata
import os
import pathlib
import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# As in this Python, so that one version is tested.
TEST_PACKAGES = ["numpy", "pytest==8.*", "safetensors==0.*", *(f"{name}=={importlib.metadata.version(name)}"
                                                               for name in ["scikit-build-core", "transformers"])]
INDEX = "https://download.pytorch.org/whl/cpu"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def clean_copy(place):
    """The files that a fresh clone would have, changes included."""
    shutil.rmtree(place, ignore_errors=True)
    names = subprocess.check_output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():  # not one that was deleted since
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def pip(python, *arguments):
    run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def check(wheel):
    """What a wheel must be."""
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.stat().st_size < 20e6, f"{wheel.name}: {wheel.stat().st_size} bytes"
    assert "-py3-none-" in wheel.name, wheel.name
    libraries = [name for name in names if ".so" in name]
    assert libraries == ["headroom_torch/libheadroom_torch.so"], libraries
    assert "headroom_torch/recipes/switchhead/wt103_47m.toml" in names


def unpacked_sdist(source, out):
    """The sdist of `source`, which has no tests."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run(sys.executable, "-c", "import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])", out, cwd=source,
        stdout=subprocess.DEVNULL)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(out)
    unpacked = out / archive.name.removesuffix(".tar.gz")
    assert not (unpacked / "tests").exists()
    return unpacked


def install_torch(python):
    version = importlib.metadata.version("torch")
    if version.endswith("+cpu"):
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        environment = {**os.environ, "PIP_EXTRA_INDEX_URL": f"{os.environ.get('PIP_EXTRA_INDEX_URL', '')} {INDEX}".strip()}
        for way in ({}, environment):
            if subprocess.run([*install, f"torch=={version}", *TEST_PACKAGES], env=way or None).returncode == 0:
                return
    print(f"torch {version}: not to be had without CUDA; the environment borrows that of {sys.executable}")
    folder = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()
    pathlib.Path(folder, "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")


def main(build, environment):
    place = build / "package"
    # The paths of two copies, and of the same one in two checkouts, are alike to the compiler's cache.
    os.environ["CCACHE_BASEDIR"] = str(place)
    python, stamp = environment / "bin" / "python", environment / "torch"
    wanted = f"{importlib.metadata.version('torch')} {TEST_PACKAGES}"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(environment, clear=True, with_pip=True)
        install_torch(python)
        stamp.write_text(wanted)

    source = clean_copy(place / "source")
    pip(python, "install", "--no-build-isolation", "--force-reinstall", "--no-deps", source)
    run(python, "-c", "import headroom_torch; print(headroom_torch.__file__)", cwd="/")

    wheels = place / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    pip(python, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels,
        unpacked_sdist(source, place / "sdist"))
    (wheel,) = wheels.glob("*.whl")
    check(wheel)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
