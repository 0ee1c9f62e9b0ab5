"""The installed package: its torch version, and the examples."""

import importlib.metadata
import pathlib
import subprocess
import sys

import torch

import headroom_torch
import train_runs

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples"


def run(*arguments, cwd):
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
                          timeout=train_runs.PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_is_pinned_to_a_minor_version():
    minor = ".".join(torch.__version__.split(".")[:2])
    needed = [each for each in importlib.metadata.requires("headroom-torch") if "extra ==" not in each]
    assert needed == [f"torch=={minor}.*"]
    assert headroom_torch.__version__ == importlib.metadata.version("headroom-torch")


def test_the_wheel_brings_what_it_links():
    """SentencePiece comes from the wheel, not from the system."""
    used = {line.split()[-1] for line in open("/proc/self/maps") if "sentencepiece" in line}
    assert len(used) == 2 and all("/headroom_torch.libs/libsentencepiece" in path for path in used), used


def test_a_wheel_names_its_torch_version(tmp_path):
    sys.path.append(str(EXAMPLES.parent / "python" / "wheel"))
    import make
    source = make.source_for("2.9", tmp_path / "source")
    assert f'version = "{importlib.metadata.version("headroom-torch")}+torch2.9"' in (source / "pyproject.toml").read_text()
    licences = [path.name for path in (source / "licences").iterdir()]
    assert set(licences) <= set(make.BUNDLED)


def test_another_torch_is_refused(tmp_path):
    done = subprocess.run([sys.executable, "-c", "import torch; torch.__version__ = '2.1.0'; import headroom_torch"],
                          cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("ImportError: headroom_torch: was built with torch")


def test_an_import_without_numpy_warns_of_nothing(tmp_path):
    run("-W", "error::UserWarning", "-c", "import sys; sys.modules['numpy'] = None; import headroom_torch", cwd=tmp_path)


def test_nanogpt_swap(tmp_path):
    lines = run(EXAMPLES / "nanogpt_swap.py", "--steps", 20, cwd=tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == ["plain", "SwitchHead"]
    assert all(float(line.split("loss ")[1].split()[0]) < 5 for line in lines)


def test_your_own_score(tmp_path):
    assert "equal the fused operator's" in run(EXAMPLES / "your_own_score.py", cwd=tmp_path)
