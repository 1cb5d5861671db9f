import pytest

from perfci.errors import StoredFileError
from perfci.thresholds import CaseThresholds, Thresholds, load
from perfci.wording import catalogue, sentence


def _load(folder, ops=None, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return load(folder, ops)


def _error(folder, ops=None, **files):
    with pytest.raises(StoredFileError) as caught:
        _load(folder, ops, **files)
    reason = caught.value.reason
    assert reason.kind in catalogue()
    return reason, sentence(reason)


def test_the_committed_defaults_are_the_built_in_ones(pytestconfig):
    folder = pytestconfig.rootpath / "thresholds"

    assert (folder / "default.yaml").is_file()
    assert load(folder).default == CaseThresholds()


def test_a_project_without_thresholds_is_judged_by_the_built_in_ones(tmp_path):
    assert load(tmp_path / "nowhere") == Thresholds()


def test_values_fall_through_from_default_to_op_to_case(tmp_path):
    thresholds = _load(
        tmp_path,
        default="margin: 3 %\nrsd: 4 %\n",
        softmax="speedup: 1.2\ncases:\n  dtype=float32:\n    margin: 5%\n  cols=7:\n    margin: 8 %\n",
    )

    assert thresholds.for_case("matmul", "rows=1").margin == 0.03
    assert thresholds.for_case("softmax", "cols=8,dtype=float16") == CaseThresholds(margin=0.03, rsd=0.04, speedup=1.2)
    assert thresholds.for_case("softmax", "cols=8,dtype=float32").margin == 0.05
    assert thresholds.for_case("softmax", "cols=7,dtype=float32").margin == 0.08


def test_an_empty_file_changes_nothing(tmp_path):
    assert _load(tmp_path, default="", softmax="# later\n").for_case("softmax", "rows=1") == CaseThresholds()


def test_a_floor_of_one_timer_leaves_the_others(tmp_path):
    case = _load(tmp_path, default="floor_us:\n  event: 0.7\n").default

    assert (case.floor("event"), case.floor("activity"), case.floor("virtual")) == (0.7, 0.1, 0.0)


def test_an_unknown_timer_gets_the_largest_floor():
    assert CaseThresholds().floor("sundial") == 0.5
    assert CaseThresholds().floor(None) == 0.5


@pytest.mark.parametrize(
    ("us", "tau"), [(0.5, 0.05), (3.0, 0.025), (9.9, 0.025), (10.0, 0.015), (40.0, 0.01), (900, 0.01)]
)
def test_tau_steps_down_as_kernels_get_longer(us, tau):
    assert CaseThresholds().tau_at(us) == tau


def test_tau_may_be_given_in_any_order(tmp_path):
    assert _load(tmp_path, default="tau:\n  40: 1 %\n  0: 4 %\n").default.tau == ((0.0, 0.04), (40.0, 0.01))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("margin: 2 %\nmargni: 3 %\n", 2, "did you mean margin?"),
        ("xyzzy: 3 %\n", 1, "Use one of these: alpha, floor_us"),
        ("margin: 2\n", 1, "margin is 2, where a percentage"),
        ("margin: -2 %\n", 1, "margin is -2 %"),
        ("margin: 100 %\n", 1, "below 100 %"),
        ("margin: [2 %]\n", 1, "a list or a mapping"),
        ("margin:\n", 1, "margin is nothing"),
        ("alpha: 0 %\n", 1, "above 0 %"),
        ("alpha: 60 %\n", 1, "up to 50 %"),
        ("speedup: fast\n", 1, "speedup is fast"),
        ("speedup: 0\n", 1, "a number above 0"),
        ("speedup: yes\n", 1, "speedup is yes"),
        ("speedup: .inf\n", 1, "speedup is .inf"),
        ("speedup: .nan\n", 1, "speedup is .nan"),
        ("span_floor_us: -1\n", 1, "zero or more"),
        ("rsd: 5 %\nrsd: 6 %\n", 2, "a second time"),
        ("floor_us:\n  activty: 0.1\n", 2, "did you mean activity?"),
        ("floor_us: 0.1\n", 1, "a mapping"),
        ("tau:\n  3: 1 %\n", 1, "begin at length 0"),
        ("tau:\n  0: 1 %\n  long: 2 %\n", 1, "kernel lengths in microseconds"),
        ("tau:\n  0: 1\n", 2, "where a percentage"),
        ("tau:\n  0: 0 %\n", 2, "above 0 %, since no two times are ever equal"),
        ("tau:\n  0: 1 %\n  .inf: 1 %\n", 1, "kernel lengths in microseconds"),
        ("tau:\n  nan: 1 %\n", 1, "kernel lengths in microseconds"),
        ("span_margin: 0 %\n", 1, "above 0 %"),
        ("register: 5 %\n", 1, "did you mean registers?"),
        ("spill_byte: 5\n", 1, "did you mean spill_bytes?"),
        ("shared_memroy: 5 %\n", 1, "did you mean shared_memory?"),
        ("registers: 5\n", 1, "where a percentage"),
        ("peak_memory: none\n", 1, "where a percentage"),
        ("spill_bytes: 5 %\n", 1, "a number, zero or more"),
        ("- margin\n", 1, "a mapping"),
        ("cases:\n  rows=1:\n    margin: 3 %\n", 1, "belongs in <op>.yaml"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_remedy(tmp_path, text, line, words):
    reason, words_found = _error(tmp_path, default=text)

    assert reason.facts["file"] == str(tmp_path / "default.yaml")
    assert reason.facts["line"] == line
    assert words in words_found


def test_alpha_belongs_to_the_whole_run(tmp_path):
    assert "belongs in default.yaml" in _error(tmp_path, softmax="alpha: 1 %\n")[1]
    assert "belongs in default.yaml" in _error(tmp_path, softmax="cases:\n  a=1:\n    alpha: 1 %\n")[1]


def test_torn_yaml_is_named_with_its_line(tmp_path):
    reason, words = _error(tmp_path, default="margin: 2 %\nrsd: [5 %\n")

    assert reason.kind == "thresholds_unreadable"
    assert reason.facts["line"] == 3
    assert "default.yaml" in words


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "default.yaml").write_bytes(b"margin: \xff\xfe %")

    with pytest.raises(StoredFileError) as caught:
        load(tmp_path)

    assert caught.value.reason.kind == "thresholds_unreadable"


def test_a_file_of_an_unknown_op_is_an_error_with_a_guess(tmp_path):
    assert "did you mean softmax?" in _error(tmp_path, ops=["softmax"], softmx="margin: 2 %\n")[1]
    (tmp_path / "softmx.yaml").unlink()
    assert "no op zebra: rename or delete" in _error(tmp_path, ops=["matmul"], zebra="margin: 2 %\n")[1]


def test_ops_are_not_checked_unless_they_are_given(tmp_path):
    assert _load(tmp_path, anything="margin: 4 %\n").for_case("anything", "a=1").margin == 0.04


def test_a_floor_that_a_file_leaves_out_is_the_one_of_the_file_above(tmp_path):
    thresholds = _load(
        tmp_path,
        default="floor_us:\n  activity: 0.3\n  event: 0.8\n",
        softmax="floor_us:\n  event: 0.9\ncases:\n  rows=1:\n    floor_us:\n      virtual: 0.4\n",
    )

    assert thresholds.for_case("softmax", "rows=1").floor_us == {"activity": 0.3, "event": 0.9, "virtual": 0.4}
    assert thresholds.for_case("softmax", "rows=2").floor_us == {"activity": 0.3, "event": 0.9, "virtual": 0.0}


# --- against a base ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("us", "timer", "allowed"),
    [
        (100.0, "activity", 0.01),
        (100.0, "event", 0.01),
        (40.0, "event", 0.0125),
        (12.0, "activity", 0.015),
        (4.0, "activity", 0.025),
        (2.0, "activity", 0.05),
        (2.0, "event", 0.25),
        (2.0, "virtual", 0.05),
        (0.4, "event", 1.25),
        (2.0, None, 0.25),
    ],
)
def test_allowed_is_tau_or_what_the_timer_cannot_tell(us, timer, allowed):
    assert CaseThresholds().allowed(us, timer) == pytest.approx(allowed)


GATES = ("registers", "instructions", "shared_memory", "occupancy", "spill_bytes", "peak_memory")


def test_nothing_that_the_compiler_makes_is_gated_unless_a_file_says_so(pytestconfig):
    for limits in (CaseThresholds(), load(pytestconfig.rootpath / "thresholds").default):
        assert [getattr(limits, gate) for gate in GATES] == [None] * len(GATES)


def test_every_gate_can_be_set_for_all_for_an_op_and_for_a_case(tmp_path):
    thresholds = _load(
        tmp_path,
        default="registers: 10 %\nspill_bytes: 8\n",
        softmax="instructions: 5 %\nshared_memory: 0 %\noccupancy: 20 %\n"
        "cases:\n  rows=1:\n    registers: 0 %\n    peak_memory: 3 %\n",
    )

    found = thresholds.for_case("softmax", "rows=1")

    assert [getattr(found, gate) for gate in GATES] == [0.0, 0.05, 0.0, 0.2, 8.0, 0.03]
    assert thresholds.for_case("softmax", "rows=2").registers == 0.1
    assert thresholds.for_case("matmul", "rows=1").instructions is None


def test_the_committed_defaults_show_every_gate_and_how_to_set_it(pytestconfig, tmp_path):
    text = (pytestconfig.rootpath / "thresholds" / "default.yaml").read_text(encoding="utf-8")
    shown = [
        line.removeprefix("# ") for line in text.splitlines() if line.removeprefix("# ").partition(":")[0] in GATES
    ]

    found = _load(tmp_path, default="\n".join(shown)).default

    assert all(getattr(found, gate) is not None for gate in GATES)
