"""Installs the package as its users do, into a virtual environment without this repository.

    python tests/python/make_environment.py BUILD ENVIRONMENT

Installs the wheel that `./run.sh wheel` makes (python/wheel/make.py) from a source distribution of a clean copy
of the repository, its dependencies, and those of its extra [huggingface]. The previous wheel
is used again if the source distribution has not changed; otherwise the compiler cache is used if there is one.

The environment uses the torch of this Python, so that it takes neither time nor space.
"""

import hashlib
import importlib.metadata
import pathlib
import re
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python" / "wheel"))
import make  # noqa: E402

# The tests in the environment use the versions that the tests of this Python use.
TEST_PACKAGES = ["numpy", "pytest==8.*", "safetensors==0.*", f"transformers=={importlib.metadata.version('transformers')}"]


def install_torch(python):
    """Links to this Python's torch instead of copying a gigabyte; pip adds the dependencies."""
    torch, place = make.torch_folder(make.own_torch(), None), pathlib.Path(make.site_packages(python))
    if make.own_torch().endswith("+cpu"):
        for name in ("torch", "torchgen", "functorch", f"torch-{make.own_torch()}.dist-info"):
            (place / name).symlink_to(pathlib.Path(torch, name))
    else:  # its dependencies are gigabytes, too
        (place / "borrowed.pth").write_text(f"{torch}\n")


def wheel_of(tools, archive, source, place):
    """Returns the wheel of a source distribution; the wheel in `place` if it is of the same distribution and torch."""
    stamp = place / "repaired" / "made_of"
    made_of = f"{hashlib.sha256(archive.read_bytes()).hexdigest()} {make.own_torch()}"
    if stamp.exists() and stamp.read_text() == made_of:
        return next(stamp.parent.glob("*.whl"))
    # The compiler options must equal the build's, so that the compiler cache has the objects.
    strict = re.search("^HEADROOM_WERROR:BOOL=(.*)$", (place.parent / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    wheel = make.make_wheel(tools, source, place, make.torch_folder(make.own_torch(), None), HEADROOM_WERROR=strict)
    stamp.write_text(made_of)
    return wheel


def main(build, environment):
    place = build / "package"
    python, stamp = environment / "bin" / "python", environment / "torch"
    wanted = f"{make.own_torch()} {TEST_PACKAGES}"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(environment, clear=True, with_pip=True)
        install_torch(python)
        make.pip(python, "install", f"torch=={make.own_torch()}", *TEST_PACKAGES)
        stamp.write_text(wanted)

    tools = make.environment(place / "tools", make.torch_folder(make.own_torch(), None), make.TOOLS)
    archive, source = make.make_sdist(tools, make.source_for(make.own_torch(), place / "source"), place / "sdist")
    wheel = wheel_of(tools, archive, source, place)
    make.pip(python, "install", "--force-reinstall", "--no-deps", wheel)
    make.pip(python, "install", f"{wheel}[huggingface]")  # only missing packages
    make.run(python, "-c", "import headroom_torch; print(headroom_torch.__file__)", cwd="/", env={"PATH": "/nowhere"})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
