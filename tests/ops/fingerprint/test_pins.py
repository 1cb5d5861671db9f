"""What a project asks of its toolchain."""

import pytest

from perfci.ops.fingerprint.pins import pins_changed


@pytest.fixture
def changes(tmp_path):
    """What changed in one file, from one text to another."""

    def changes(name: str, old: str | None, new: str | None) -> tuple[str, ...]:
        for folder, text in (("base", old), ("head", new)):
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                path.write_text(text)
        pins = pins_changed(tmp_path / "head", tmp_path / "base")
        assert all(pin.startswith(f"{name}: ") for pin in pins)
        return tuple(pin.removeprefix(f"{name}: ") for pin in pins)

    return changes


@pytest.mark.parametrize("name", ["requirements/cpu.txt", "constraints.txt"])
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("triton==3.7.1", "triton==3.8.0", ("triton==3.7.1 -> triton==3.8.0",)),
        ("tilelang==0.1.8", "tilelang==0.1.9", ("tilelang==0.1.8 -> tilelang==0.1.9",)),
        ("cupy-cuda13x==14.1", "cupy-cuda13x==14.2", ("cupy-cuda13x==14.1 -> cupy-cuda13x==14.2",)),
        ("torch-npu==2.6  # for CANN 8\n", "torch_npu==2.7\n", ("torch-npu==2.6 -> torch_npu==2.7",)),
        ("triton>=3", "triton-ascend>=3", ("triton>=3 -> nothing", "nothing -> triton-ascend>=3")),
        ("nvidia-cublas-cu12==12.8.4.1", "nvidia-cublas-cu12==12.9", None),
        ("torch[opt] >= 2.6 ; python_version > '3'", "torch[opt] >= 2.7 ; python_version > '3'", None),
        ("torch @ https://example.org/torch-2.6.whl", "torch @ https://example.org/torch-2.7.whl", None),
        ("Torch", "Torch==2.7", ("Torch -> Torch==2.7",)),
        ("torch==2.6 \\\n    --hash=sha256:1", "torch==2.7 \\\n    --hash=sha256:2", ("torch==2.6 -> torch==2.7",)),
        (
            "--index-url https://download.pytorch.org/whl/cu126",
            "--index-url https://download.pytorch.org/whl/cu128",
            None,
        ),
        ("torch==2.6; a\ntorch==2.6; b", "torch==2.7; a\ntorch==2.6; b", ("torch==2.6; a -> torch==2.7; a",)),
        (None, "triton==3.8", ("nothing -> triton==3.8",)),
        ("triton==3.8", None, ("triton==3.8 -> nothing",)),
    ],
)
def test_a_changed_requirement_is_told(changes, name, old, new, expected):
    assert changes(name, old, new) == (expected or (f"{old} -> {new}",))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch==2.6 # old reason", "torch==2.6  # new reason"),
        ("torch==2.6\nrich==13", "rich==14\ntorch==2.6"),
        ("torch-geometric==2.6", "torch-geometric==2.7"),
        ("torchvision==0.2\ntorch2trt==1\nmytorch==1", "torchvision==0.3\ntorch2trt==2\nmytorch==2"),
        ("# triton==3.7", "# triton==3.8"),
        ("torch==2.6 --hash=sha256:1", "torch==2.6 --hash=sha256:2"),
        ("--index-url https://pypi.org/simple", "--index-url https://example.org/simple"),
    ],
)
def test_what_does_not_change_the_toolchain_is_not_told(changes, old, new):
    assert changes("requirements.txt", old, new) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[project]\ndependencies = ["rich", "triton>=3.{}"]', "triton>=3.7 -> triton>=3.8"),
        ('[project.optional-dependencies]\ncpu = ["torch>=2.{}; x"]', "torch>=2.7; x -> torch>=2.8; x"),
        ('[dependency-groups]\ngpu = ["triton==3.{}", {{include-group = "x"}}]', "triton==3.7 -> triton==3.8"),
        ('[tool.poetry.dependencies]\ntorch = "^2.{}"', 'torch = "^2.7" -> torch = "^2.8"'),
        (
            '[tool.uv.sources]\ntorch = {{index = "cu12{}"}}',
            'torch = {index = "cu127"} -> torch = {index = "cu128"}',
        ),
        ('[build-system]\nrequires = ["torch==2.{}"]', "torch==2.7 -> torch==2.8"),
    ],
)
def test_a_changed_dependency_of_the_project_is_told(changes, text, expected):
    assert changes("pyproject.toml", text.format(7), text.format(8)) == (expected,)


LOCK = '[[package]]\nname = "rich"\nversion = "{0}"\n\n[[package]]\nname = "nvidia-cudnn-cu12"\nversion = "{0}"\n'
LOCKED = ["nvidia-cudnn-cu12==1 -> nvidia-cudnn-cu12==2"]
CONDA = """\
dependencies:
  - pytorch={0}
  - nvidia::cuda-toolkit={0}  # a channel's
  - pytorch {0} py3_cuda
  - pip:
    - 'triton=={0}'
"""
PIPELINE = """\
check:
  image: pytorch/pytorch:{0}
lint:
  image: python:3.{0}
npu:
  image:
    name: 'ascendai/cann:{0}'
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("uv.lock", LOCK, LOCKED),
        ("poetry.lock", LOCK, LOCKED),
        (
            "environment.yml",
            CONDA,
            [
                "nvidia::cuda-toolkit=1 -> nvidia::cuda-toolkit=2",
                "pytorch 1 py3_cuda -> pytorch 2 py3_cuda",
                "pytorch=1 -> pytorch=2",
                "triton==1 -> triton==2",
            ],
        ),
        (
            ".gitlab-ci.yml",
            PIPELINE,
            ["ascendai/cann:1 -> ascendai/cann:2", "pytorch/pytorch:1 -> pytorch/pytorch:2"],
        ),
    ],
)
def test_a_change_of_a_lock_an_environment_or_an_image_is_told(changes, name, text, expected):
    assert changes(name, text.format(1), text.format(2)) == tuple(expected)


def test_a_requirements_file_that_lies_elsewhere_is_told_nothing_of(changes, tmp_path):
    (tmp_path / "theirs").write_text("--extra-index-url https://user:token@host/torch\n")
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "requirements.txt").symlink_to(tmp_path / "theirs")

    assert changes("requirements.txt", None, None) == ()
