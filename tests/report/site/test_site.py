import pytest

from perfci.core.errors import UsageError
from perfci.report import site


def build(root, out="public"):
    return site.build(root / "baselines", root, root / out)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def root(histories, tmp_path):
    """A project of two devices, and two ops whose names differ by case alone."""
    runs = histories.steady(count=5)
    places = (("nvidia-h200", "softmax"), ("nvidia-h200", "Softmax"), ("ascend-910b", "softmax"))
    return histories.project(tmp_path, dict.fromkeys(places, runs))


def test_every_op_and_device_has_a_page(root):
    found = build(root)

    assert files(root / "public") == [
        ".perfci-site.json", "ascend-910b/softmax.html", "index.html", "nvidia-h200/Softmax-02fc7694.html",
        "nvidia-h200/softmax.html",
    ]  # fmt: skip
    assert (found.notes, found.gone, len(found.pages)) == ((), (), 3)


def test_every_link_leads_to_a_page(root, parse):
    build(root)
    site_folder = root / "public"
    links = [
        (page, node.attributes["href"])
        for page in site_folder.rglob("*.html")
        for node in parse(page.read_text(encoding="utf-8")).all("a")
    ]
    followed = [(page.parent / link).resolve() for page, link in links if not link.startswith("#")]

    assert len(followed) == 3 + 3 + 2  # from the index, back to it, and to the same op on the other device
    assert all(path.is_file() and path.is_relative_to(site_folder) for path in followed)


def test_the_same_history_gives_the_same_bytes(root):
    build(root)
    build(root, "again")

    for name in files(root / "public"):
        assert (root / "public" / name).read_bytes() == (root / "again" / name).read_bytes()


def test_pages_of_ops_that_are_gone_are_taken_away(root):
    build(root)
    (root / "baselines" / "ascend-910b" / "softmax.history.jsonl").unlink()

    assert build(root).gone == ("ascend-910b/softmax.html",)
    assert not (root / "public" / "ascend-910b").exists()


def test_no_history_is_an_empty_index_that_says_what_to_do(tmp_path, histories):
    histories.project(tmp_path, {})
    found = build(tmp_path)

    assert [note.kind for note in found.notes] == ["site_without_history"]
    text = found.index.read_text(encoding="utf-8")
    assert "There is no history in baselines yet" in text
    assert "perfci accept" in text


def test_a_damaged_history_is_shown_as_damaged_and_the_others_go_on(root, parse):
    path = root / "baselines" / "ascend-910b" / "softmax.history.jsonl"
    path.write_bytes(b"\x00\xff\n" + path.read_bytes())
    found = build(root)

    assert len(found.pages) == 3
    assert [note.kind for note in found.notes] == ["history_damaged"]
    index = parse(found.index.read_text(encoding="utf-8"))
    states = {node.attributes["data-key"]: node.attributes["data-state"] for node in index.all("tbody")}
    assert states["ascend-910b/softmax.html"] == "damaged"
    assert list(states.values()).count("damaged") == 1
    assert str(root) not in index.text


def test_a_folder_of_others_is_refused_before_anything_is_read(root):
    (root / "public").mkdir()
    (root / "public" / "mine.html").write_text("mine")

    with pytest.raises(UsageError, match="did not make"):
        build(root)
    assert files(root / "public") == ["mine.html"]


def test_histories_are_taken_one_at_a_time(histories, tmp_path):
    taken, written = [], []

    def some():
        for number in range(3):
            taken.append(number)
            written.append(len(list(tmp_path.rglob("op*.html"))))
            yield histories.kept(histories.steady(count=2), op=f"op{number}")

    places = [histories.OpOnDevice("nvidia-h200", f"op{number}") for number in range(3)]
    site.write(some(), places, "demo", tmp_path / "s")
    assert (taken, written) == ([0, 1, 2], [0, 1, 2])
