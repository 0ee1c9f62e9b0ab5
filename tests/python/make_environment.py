"""Builds the wheel out of a build folder and installs it into a virtual environment that knows nothing of this repository.

    python tests/python/make_environment.py BUILD ENVIRONMENT

The sdist is made as well, unpacked and configured, not compiled: that would take minutes.

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
TEST_PACKAGES = ["numpy", "pytest==8.*", "safetensors==0.*",
                 f"transformers=={importlib.metadata.version('transformers')}"]  # as in this Python
INDEX = "https://download.pytorch.org/whl/cpu"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def build_wheel(build, out):
    shutil.rmtree(out, ignore_errors=True)
    # The objects of the build folder serve: nothing is compiled twice.
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", out,
        f"--config-settings=build-dir={build}", "--config-settings=cmake.define.HEADROOM_PACKAGE_ONLY=OFF",
        ROOT)
    (wheel,) = out.glob("*.whl")
    return wheel


def check(wheel):
    """What a wheel must be."""
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.stat().st_size < 20e6, f"{wheel.name}: {wheel.stat().st_size} bytes"
    assert "-py3-none-" in wheel.name, wheel.name
    libraries = [name for name in names if ".so" in name]
    assert libraries == ["headroom_torch/libheadroom_torch.so"], libraries
    assert "headroom_torch/recipes/switchhead/wt103_47m.toml" in names


def check_sdist(out):
    """The sdist has all that CMake asks for where only the package is built, and no tests."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run(sys.executable, "-c", "import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])", out, cwd=ROOT,
        stdout=subprocess.DEVNULL)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(out)
    source = out / archive.name.removesuffix(".tar.gz")
    assert not (source / "tests").exists()
    run("cmake", "-S", source, "-B", out / "configured", "-G", "Ninja", "-DHEADROOM_PACKAGE_ONLY=ON",
        f"-DHEADROOM_PYTHON={sys.executable}", "--log-level=WARNING")


def install_torch(python):
    version = importlib.metadata.version("torch")
    if version.endswith("+cpu"):
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        environment = {**os.environ, "PIP_EXTRA_INDEX_URL": f"{os.environ.get('PIP_EXTRA_INDEX_URL', '')} {INDEX}".strip()}
        for way in ({}, environment):
            if subprocess.run([*pip, f"torch=={version}", *TEST_PACKAGES], env=way or None).returncode == 0:
                return
    print(f"torch {version}: not to be had without CUDA; the environment borrows that of {sys.executable}")
    folder = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()
    pathlib.Path(folder, "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")


def main(build, environment):
    wheel = build_wheel(build, build / "wheels")
    check(wheel)
    check_sdist(build / "sdist")
    python, stamp = environment / "bin" / "python", environment / "torch"
    wanted = f"{importlib.metadata.version('torch')} {TEST_PACKAGES}"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(environment, clear=True, with_pip=True)
        install_torch(python)
        stamp.write_text(wanted)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall", wheel)
    run(python, "-c", "import headroom_torch; print(headroom_torch.__file__)", cwd="/")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
