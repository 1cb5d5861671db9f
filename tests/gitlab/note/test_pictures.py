import pytest

from perfci import report
from perfci.gitlab.note.pictures import LARGEST, pictures

PNG = b"\x89PNG\r\n\x1a\n..."


@pytest.fixture
def folder(tmp_path):
    for name in (
        "duels-softmax.png",
        "blocks-softmax.png",
        "blocks-matmul-1.png",
        "speedup-gelu.png",
        "duels-bias_relu.png",
    ):
        (tmp_path / name).write_bytes(PNG)
    return tmp_path


def test_one_picture_an_op_the_gravest_op_first(examples, folder):
    found = pictures(examples.duelled()[1], folder)

    assert [one.op for one in found] == ["softmax", "bias_relu", "matmul", "gelu"]
    assert [one.path.name for one in found] == [
        "duels-softmax.png", "duels-bias_relu.png", "blocks-matmul-1.png", "speedup-gelu.png",
    ]  # fmt: skip


def test_only_a_few_are_shown(examples, folder):
    assert len(pictures(examples.duelled()[1], folder, most=2)) == 2


def test_a_picture_that_is_too_large_gives_way_to_the_next(examples, folder):
    (folder / "duels-softmax.png").write_bytes(PNG + b"x" * LARGEST)

    assert pictures(examples.duelled()[1], folder)[0].path.name == "blocks-softmax.png"


def test_a_file_that_is_no_picture_is_left_out_whatever_its_name(examples, folder):
    (folder / "duels-softmax.png").write_text("<svg onload=alert(1)>", encoding="utf-8")

    assert pictures(examples.duelled()[1], folder)[0].path.name == "blocks-softmax.png"


def test_a_link_is_no_picture(examples, folder, tmp_path_factory):
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_text("secret", encoding="utf-8")
    (folder / "duels-softmax.png").unlink()
    (folder / "duels-softmax.png").symlink_to(secret)

    assert pictures(examples.duelled()[1], folder)[0].path.name == "blocks-softmax.png"


def test_a_folder_without_pictures_gives_none(examples, tmp_path):
    assert pictures(examples.duelled()[1], tmp_path / "none") == ()


def test_names_are_those_that_the_report_writes(examples, tmp_path):
    run, judgements = examples.small()
    report.write(run, judgements, tmp_path)

    found = pictures(judgements, tmp_path)
    assert [one.op for one in found] == ["softmax"]
    assert found[0].path.read_bytes().startswith(b"\x89PNG")
