"""Every reason has its sentence and every text its words, in each language that perfci speaks."""

import ast
import functools
import re
from pathlib import Path
from string import Formatter

import pytest
import yaml

import perfci
from perfci.core.model import Reason
from perfci.core.wording import ENGLISH, LANGUAGES, catalogue, join, phrases, say, sentence, speaking
from tests.sources import trees, walk

KINDS = sorted(catalogue())
OTHERS = [language for language in LANGUAGES if language != ENGLISH]
FORMATS = {"", "us", "%", "+%", "size", "n", "sh", "say", "stage"}
CODE = ("make_inputs", "torch ", "[tool.perfci")  # names of code keep their spelling at the start of a sentence
PACKAGE = Path(perfci.__file__).parent


def facts_of(template: str) -> set[tuple[str, str]]:
    """(name, format) of every fact in a template, without nouns, which belong to the language."""
    parsed = [(name, spec or "") for _, name, spec, _ in Formatter().parse(template) if name is not None]
    return {(name, "" if spec.count("|") == 1 else spec) for name, spec in parsed}


SAYERS = {
    "perfci.core.model": {"as_fact"},
    "perfci.core.model.basics": {"as_fact"},
    "perfci.core.wording": {"say"},
    "perfci.extensions.pictures.style": {"caption"},
    "perfci.report.text": {"phrase"},
}


@functools.cache
def said() -> dict[str, str]:
    """Every text given to `say` or `as_fact` in the source -> its file."""
    templates: dict[str, str] = {}
    for path, tree in trees().items():
        froms = [n for n in walk(tree) if isinstance(n, ast.ImportFrom) and n.module in SAYERS]
        sayers = {alias.name for node in froms for alias in node.names if alias.name in SAYERS[node.module]}
        for call in (node for node in walk(tree) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in sayers:
                text = call.args[0]
                assert isinstance(text, ast.Constant), (
                    f"{path.name}, line {call.lineno}: a text to be said is a literal"
                )
                templates[text.value] = path.name
        if any(isinstance(node, ast.Name) and node.id == "make_table" for node in walk(tree)):
            texts = [node.value for node in walk(tree) if isinstance(node, ast.Constant)]
            headings = [text for text in texts if isinstance(text, str) and " | " in text]  # columns of a table
            templates |= {name.rstrip(":"): path.name for text in headings for name in text.split(" | ") if name}
    for path in PACKAGE.rglob("*.j2"):
        templates |= dict.fromkeys(re.findall(r"\bsay\(\s*\"([^\"]*)\"", path.read_text(encoding="utf-8")), path.name)
    return templates


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that comes twice, which YAML would let the later win."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(keys) == len(set(keys)), sorted(key for key in keys if keys.count(key) > 1)
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize("name", [f"{language}.yaml" for language in LANGUAGES] + [f"{o}.phrases.yaml" for o in OTHERS])
def test_nothing_comes_twice(name):
    package = Path(perfci.__file__).parent
    files = [package / "core/wording" / name, *package.glob(f"extensions/*/wording/{name}")]

    # One after the other they are one mapping, in which no key may come twice.
    assert yaml.load("\n".join(file.read_text(encoding="utf-8") for file in files), _StrictLoader)


@pytest.mark.parametrize("language", OTHERS)
def test_every_reason_has_a_sentence_in_every_language(language):
    assert sorted(catalogue(language)) == KINDS


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_names_the_same_facts_in_every_language(language):
    there = catalogue(language)

    assert [kind for kind in KINDS if facts_of(catalogue()[kind]) != facts_of(there[kind])] == []


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_has_its_words_in_every_language_and_none_is_left_over(language):
    there = phrases(language)

    assert {text: where for text, where in said().items() if text not in there} == {}
    assert sorted(there.keys() - said()) == []


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_names_the_same_facts_in_every_language(language):
    there = phrases(language)

    assert [text for text in said() if facts_of(text) != facts_of(there[text])] == []


def test_all_texts_have_known_formats():
    fields = {(text, *field) for text in said() for field in facts_of(text)}

    assert [text for text, name, spec in sorted(fields) if not name.isidentifier() or spec not in FORMATS] == []


def test_chinese_sentences_end_as_such_and_have_marks_of_their_own():
    templates = catalogue("zh").values()

    assert [text for text in templates if not text.endswith(("。", "？", "}", "："))] == []  # noqa: RUF001
    assert [text for text in templates if re.search("[\u3400-\u9fff][,;:!?]|[,;!?][\u3400-\u9fff]", text)] == []


OTHER_WORDS = ["答案", "门禁失败", "多久会错", "对决", "浸泡", "发射记录", "跳变", "本地内存", "不算下载", "整页"]
"""Words of Chinese for which there is another: one thing has one name."""

CHINESE = [*PACKAGE.rglob("wording/zh*.yaml"), PACKAGE.parent / "README.zh-CN.md", *PACKAGE.parent.glob("docs/zh/*.md")]


@pytest.mark.parametrize("file", CHINESE, ids=lambda file: file.name)
def test_one_thing_has_one_name_in_chinese_and_no_mark_is_followed_by_a_blank(file):
    text = file.read_text(encoding="utf-8")

    assert [word for word in OTHER_WORDS if word in text] == []
    assert re.findall("[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f] +(?![|#])[^\n]{0,20}", text) == []


def test_sentences_in_chinese_follow_each_other_without_a_blank():
    with speaking("zh"):
        told = join(sentence(Reason("selftest_not_timed")) for _ in range(2))

    assert told.count("。") == 2
    assert not re.search("[。，：；] ", told)  # noqa: RUF001


@pytest.mark.parametrize(
    "stage", ["accuracy of rows=1, normal", "measure of the base of rows=1", "import", "prepare of rows=1", "suites"]
)
def test_a_stage_is_told_in_the_readers_language(stage):
    reason = Reason("worker_hung", {"op": "scale", "limit_s": 5.0, "where": stage, "log": "a.txt"})

    assert f"during {stage}," in sentence(reason)
    with speaking("zh"):
        told = sentence(reason)
    assert not re.search("accuracy|measure|base|import|prepare|suites| of ", told)


def test_a_cause_ends_without_a_stop_in_any_language():
    cause = Reason("base_wrong", {"case": "rows=1", "cause": "git_missing"})

    with speaking("zh"):
        assert "。。" not in sentence(cause)


LIMIT = {"kernel": "k", "what": "registers", "option": "registers", "before": "32", "after": "40", "allowed": 0.1}


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("not_replayable", {"what": "inputs whose shapes change with the seed"}),
        ("compared_with", {"revision": "main 1", "how": "named by --against", "duelled": 2}),
        ("accuracy_uncovered", {"op": "a", "case": "b", "count": 1, "cause": "exercises_turn"}),
        ("compiled_grew", {**LIMIT, "cause": "allows_more_share"}),
        ("weaker_fewer", {"op": "a", "suite": "accuracy", "what": "layouts", "count": 1, "of": 2, "names": "x"}),
        ("change_lacks_files", {"op": "a", "kind": "interface", "files": "b"}),
    ],
)
def test_what_a_worker_or_the_judge_says_is_read_in_the_readers_language(kind, facts):
    """They know of no language: what they put into a reason is numbers, or a text that is translated with it."""
    with speaking("zh"):
        told = sentence(Reason(kind, facts))

    assert not re.search("more|named by|shapes|second turn|registers went|accuracy suite|layouts|interface", told)


def test_what_is_spoken_ends_with_its_context():
    with speaking("zh"):
        assert say("verdict") == "判定"
    assert say("verdict") == "verdict"


def test_each_is_a_sentence_with_known_formats():
    faulty = []
    for kind in KINDS:
        template = catalogue()[kind]
        begun = template[0].isupper() or template.startswith(("{", *CODE))
        ended = template.endswith((".", "?", "}"))  # the last: somebody else's text at the end
        all_formats = all(name.isidentifier() and spec in FORMATS for name, spec in facts_of(template))
        if not (begun and ended and all_formats):
            faulty.append(template)

    assert faulty == []


def test_each_can_be_worded_without_any_fact():
    assert [kind for kind in KINDS if "{" in sentence(Reason(kind))] == []


@pytest.mark.parametrize("fact", ["a text", "", True, -1, 1e308, -1e308])
def test_each_can_be_worded_whatever_its_facts_are(fact):
    """A message of an op may have any."""
    templates = {kind: catalogue()[kind] for kind in KINDS}
    names = {kind: re.findall(r"\{(\w+)", template) for kind, template in templates.items()}

    assert all(sentence(Reason(kind, dict.fromkeys(names[kind], fact))) for kind in KINDS)


@pytest.mark.parametrize(
    ("template", "facts", "expected"),
    [
        ("{case} is slower", {"case": "rows=1"}, "rows=1 is slower"),
        ("{change:+%} slower", {"change": 0.0413}, "+4.1 % slower"),
        ("{share:%} of it", {"share": 0.5}, "50.0 % of it"),
        ("{time:us} a launch", {"time": 4.93}, "4.93 us a launch"),
        ("{room:size} free", {"room": 1 << 28}, "256 MiB free"),
        ("{error:n} off", {"error": 0.0123456}, "0.0123 off"),
        ("{count:n} blocks", {"count": 2}, "2 blocks"),
        ("{count:case|cases} of {all:op|ops}", {"count": 1, "all": 3}, "1 case of 3 ops"),
        ("{gone} and {time:us}", {}, "- and -"),
        ("{gone}", {"gone": None}, "-"),
    ],
)
def test_facts_are_written_as_their_format_says(monkeypatch, template, facts, expected):
    monkeypatch.setattr("perfci.core.wording.catalogue", lambda language: {"kind": template})

    assert sentence(Reason("kind", facts)) == expected


def test_a_text_among_the_facts_is_worded_with_the_sentence_and_no_blank_parts_chinese():
    why = Reason("nothing_launched", {"arm": "reference", "case": "rows=1"})

    assert "reference of rows=1" in sentence(why)
    with speaking("zh"):
        told = sentence(why)
        assert not re.search("[A-Za-z]{2,} [a-z]+|[\u3400-\u9fff] [\u3400-\u9fff]", told)
        cases = say("{count:case|cases}", count=3)
        assert say("{op}: {cases} accepted", op="softmax", cases=cases).endswith(" 3 个用例")


@pytest.mark.parametrize(
    ("template", "facts", "expected"),
    [
        ("{got:n} for {expected:n}", {"got": -4.651234, "expected": -4.651278}, "-4.6512 for -4.6513"),
        ("{got:n} for {expected:n}", {"got": 2**53, "expected": 2**53 + 1}, f"{2**53} for {2**53 + 1}"),
        ("{change:+%}; {margin:%} is allowed", {"change": 0.02003, "margin": 0.02}, "+2.003 %; 2.000 % is allowed"),
        ("from {before:us} to {after:us}", {"before": 43.91, "after": 43.94}, "from 43.91 us to 43.94 us"),
        ("{value:n}, limit {limit:n}", {"value": 1.5, "limit": 1.5}, "1.50, limit 1.50"),
        ("{value:n}, limit {limit:n}", {"value": 1.5, "limit": None}, "1.50, limit -"),
    ],
)  # fmt: skip
def test_numbers_that_are_compared_get_digits_until_they_read_differently(monkeypatch, template, facts, expected):
    monkeypatch.setattr("perfci.core.wording.catalogue", lambda language: {"kind": template})

    assert sentence(Reason("kind", facts)) == expected


def test_an_unknown_kind_is_shown_with_its_facts():
    assert sentence(Reason("no_such_kind", {"a": 1, "b": None})) == "no_such_kind: a=1, b=None"


def test_braces_in_a_fact_are_left_alone():
    assert "{x} is" in sentence(Reason("op_unknown", {"op": "{x} is", "known": "y"}))


def test_a_number_of_cases_is_a_whole_number_with_its_noun():
    sentences = [sentence(Reason("self_reported", {"op": "scale", "cases": count})) for count in (1, 2)]

    assert [text.partition(": ")[0] for text in sentences] == ["scale, 1 case", "scale, 2 cases"]
