"""Installs the package as its users do, into a virtual environment without this repository.

    python tests/python/make_environment.py BUILD ENVIRONMENT

Installs the wheel that `./run.sh wheel` makes (python/wheel/make.py) from a source distribution of a clean copy
of the repository, its dependencies, and those of its extra [huggingface]. The previous wheel
is used again if the source distribution has not changed; otherwise the compiler cache is used if there is one.

torch is installed from pip's indexes or cache in the version of the build, but only a build without CUDA, which
is a tenth of the size. If there is none, the environment uses the torch of this Python, and a note is printed.
"""

import hashlib
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python" / "wheel"))
import make  # noqa: E402

# The versions of this Python, so that only one version is tested.
TEST_PACKAGES = ["numpy", "pytest==8.*", "safetensors==0.*", f"transformers=={importlib.metadata.version('transformers')}"]


def install_torch(python):
    version = importlib.metadata.version("torch")
    if version.endswith("+cpu"):
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        more = {**os.environ, "PIP_EXTRA_INDEX_URL": f"{os.environ.get('PIP_EXTRA_INDEX_URL', '')} {make.CPU_INDEX}".strip()}
        for way in ({}, more):
            if subprocess.run([*install, f"torch=={version}"], env=way or None).returncode == 0:
                return
    print(f"torch {version}: not to be had without CUDA; the environment borrows that of {sys.executable}")
    pathlib.Path(make.site_packages(python), "borrowed.pth").write_text(f"{make.torch_folder(version, None)}\n")


def wheel_of(tools, archive, source, place):
    """The wheel of a source distribution: the one already in `place` if it was made from the same one, with the same torch."""
    stamp = place / "repaired" / "made_of"
    made_of = f"{hashlib.sha256(archive.read_bytes()).hexdigest()} {make.own_torch()}"
    if stamp.exists() and stamp.read_text() == made_of:
        return next(stamp.parent.glob("*.whl"))
    wheel = make.make_wheel(tools, source, place)
    stamp.write_text(made_of)
    return wheel


def main(build, environment):
    place = build / "package"
    python, stamp = environment / "bin" / "python", environment / "torch"
    wanted = f"{importlib.metadata.version('torch')} {TEST_PACKAGES}"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(environment, clear=True, with_pip=True)
        install_torch(python)
        make.pip(python, "install", *TEST_PACKAGES)
        stamp.write_text(wanted)

    tools = make.environment(place / "tools", make.torch_folder(make.own_torch(), None), make.TOOLS)
    archive, source = make.make_sdist(tools, make.source_for(make.own_torch(), place / "source"), place / "sdist")
    wheel = wheel_of(tools, archive, source, place)
    make.pip(python, "install", "--force-reinstall", "--no-deps", wheel)
    make.pip(python, "install", f"{wheel}[huggingface]")  # only missing packages
    make.run(python, "-c", "import headroom_torch; print(headroom_torch.__file__)", cwd="/", env={"PATH": "/nowhere"})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
