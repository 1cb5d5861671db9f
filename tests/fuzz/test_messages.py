"""Messages of other programs: a worker on its pipe, git on its standard output."""

import subprocess
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfci import git
from perfci.core import codec, extensions
from perfci.core.model import Base, Reason
from perfci.git import Revision
from perfci.git.base import resolve
from perfci.git.checkout import materialise
from perfci.worker.protocol import pack, unpack
from perfci.worker.tasks import list_tasks
from tests.fuzz import mutations, values
from tests.git_repositories import told

KINDS = {kind.__name__: kind for place in list_tasks() for kind in extensions.load(place).answers}
NAMES = sorted(KINDS)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_message_arrives_as_it_was_sent(name, data):
    message = data.draw(values.records(KINDS[name]))

    assert unpack(pack(message), KINDS.values()) == message


@given(data=st.data(), name=st.sampled_from(NAMES))
def test_a_spoilt_line_is_a_message_or_a_value_error(data, name):
    line = pack(data.draw(values.records(KINDS[name]))).removesuffix(b"\n")

    understood(data.draw(mutations.mutated(line)) + b"\n")


def understood(line: bytes) -> object:
    try:
        return unpack(line, KINDS.values())
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("body", mutations.RAW, ids=range(len(mutations.RAW)))
def test_a_body_that_is_none_is_a_value_error_or_a_message(body):
    for name in NAMES:
        understood(b'{"kind":"' + name.encode() + b'","body":' + body + b"}\n")


@given(st.binary(max_size=60))
@example(b'{"kind":"\xff","body":{}}\n')
def test_any_line_is_a_message_or_a_value_error(line):
    understood(line)


@given(st.text(), values.texts)
def test_text_that_utf8_cannot_hold_still_arrives(text, name):
    sent = codec.encode({"why": f"{text}\udcff", name: [name, {"x": "\ud800"}]})

    assert codec.decode(sent, dict)["why"].endswith("\\udcff")


OUTPUTS = (
    b"", b"\n", b"/tmp\n", b"# branch.oid\n", b"# branch.oid (initial)\n# branch.head (detached)\n", b"\xff\xfe\n",
    b"# branch.head a\xe2\x80\xa8b\n", b"1 .M N... 100644 x\n", b"100644 " + b"0" * 40 + b" 0\tx\x00", b"\x00\x00",
    b"0" * 40 + b"\n", b"0" * 41, b"../../etc\n", b"160000 x 0\ty\x00", b"a" * 100_000,
)  # fmt: skip
outputs = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 128]), st.sampled_from(OUTPUTS) | st.binary(max_size=40)),
    min_size=1,
    max_size=9,
)


@given(said=outputs)
def test_whatever_git_prints_is_an_answer_or_a_reason(said, tmp_path_factory):
    answers = iter(said * 40)

    def run(command, **_):
        code, output = next(answers)
        return subprocess.CompletedProcess(command, code, output, output)

    folder = tmp_path_factory.mktemp("repository", numbered=True)
    with mock.patch("perfci.git.command.subprocess.run", run):
        assert isinstance(git.read(folder), Revision | Reason)
        assert isinstance(told(resolve)(folder, None, {}), Base | Reason)
        assert isinstance(told(resolve)(folder, "main", {"CI_COMMIT_SHA": "0" * 40}), Base | Reason)
        checkout = told(materialise)(folder, "0" * 40, folder / "base")
    assert isinstance(checkout, Reason) or checkout.is_relative_to(folder) or isinstance(checkout, Path)


def test_a_branch_named_with_a_line_separator_is_no_changed_file(tmp_path):
    run = lambda *words: subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)  # noqa: E731
    run("init", "-b", "a\u2028b")
    run("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "first")

    history = git.read(tmp_path)

    assert (history.branch, history.dirty) == ("a\u2028b", False)
