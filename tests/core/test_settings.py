from pathlib import Path

import pytest

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.core.settings import KEYS, load
from perfci.core.variables import is_secret
from perfci.core.wording import sentence


def project(root: Path, table: str = "") -> Path:
    (root / "kernels").mkdir()
    if table:
        (root / "pyproject.toml").write_text(table)
    return root


def refusal(root: Path) -> Reason:
    with pytest.raises(UsageError) as caught:
        load(root)
    return caught.value.reason


def test_a_folder_with_kernels_is_a_project_with_every_default(tmp_path):
    settings = load(project(tmp_path))

    assert settings.root == tmp_path
    assert settings.kernels == tmp_path / "kernels"
    assert settings.baselines == tmp_path / "baselines"
    assert settings.thresholds == tmp_path / "thresholds"
    assert settings.reports == tmp_path / "reports"
    assert (settings.lock_folder, settings.time_limit_s, settings.environment, settings.fake) == (None, 120.0, (), {})
    assert (settings.targets, settings.cache_folder) == (("sm_90",), None)


def test_a_table_marks_the_root_where_the_kernels_lie_elsewhere(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.perfci]\nkernels = "src/ops"\nreports = "perf/reports"\n')
    (tmp_path / "src").mkdir()

    settings = load(tmp_path / "src")

    assert settings.root == tmp_path
    assert settings.kernels == tmp_path / "src" / "ops"
    assert settings.reports == tmp_path / "perf" / "reports"


def test_every_key_can_be_set(tmp_path):
    table = """[tool.perfci]
kernels = "k"
baselines = "b"
thresholds = "t"
reports = "r"
lock_folder = "locks"
lock_wait_s = 60
cache_folder = "cache"
targets = ["sm_90", "gfx942"]
time_limit_s = 30
environment = ["MY_FLAG"]
language = "zh"
devices = [0, 2]
cluster = "ray://head:10001"
quarantine = ["GPU-1d0b2a77-91f0"]
cleared = ["GPU-1d0b2a77-91f1"]
release_tags = "v*"
rounds = 8
[tool.perfci.fake]
seed = 3
[tool.perfci.backends]
tilelang = { python = "env/bin/python" }
"""
    settings = load(project(tmp_path, table))

    assert (settings.kernels.name, settings.baselines.name) == ("k", "b")
    assert (settings.thresholds.name, settings.reports.name) == ("t", "r")
    assert settings.lock_folder == tmp_path / "locks"
    assert settings.lock_wait_s == 60.0
    assert settings.cache_folder == tmp_path / "cache"
    assert settings.targets == ("sm_90", "gfx942")
    assert settings.time_limit_s == 30.0
    assert settings.environment == ("MY_FLAG",)
    assert settings.language == "zh"
    assert settings.devices == "0,2"
    assert settings.quarantine == ("GPU-1d0b2a77-91f0",)
    assert settings.cleared == ("GPU-1d0b2a77-91f1",)
    assert settings.release_tags == "v*"
    assert settings.rounds == 8
    assert settings.fake == {"seed": 3}
    assert settings.backends == {"tilelang": {"python": "env/bin/python"}}
    assert all(f"{key} =" in table or f".{key}]" in table for key in KEYS)


@pytest.mark.parametrize("given", ['"env/bin/python"', '{ pyton = "p" }', '{ python = "-c" }', "{ python = 3 }"])
def test_what_is_no_interpreter_of_a_backend_is_refused_by_the_name_of_the_table(tmp_path, given):
    with pytest.raises(UsageError) as caught:
        load(project(tmp_path, f"[tool.perfci.backends]\ntilelang = {given}\n"))

    reason = caught.value.reason
    assert (reason.kind, reason.facts["key"]) == ("setting_type", "backends")


def test_spellings_of_one_board_are_one_in_quarantine(tmp_path):
    spellings = ["GPU-1D0B2A77-91F0", " gpu-1d0b2a77-91f0 ", "1d0b2a7791f0", "MIG-1d0b2a77-91f0"]

    settings = load(project(tmp_path, f"[tool.perfci]\nquarantine = {spellings}\ncleared = {spellings}\n"))
    assert (len(settings.quarantine), len(settings.cleared)) == (2, 2)


def test_outside_any_project_the_user_is_told_what_to_do(tmp_path):
    reason = refusal(tmp_path)

    assert reason == Reason("no_project", {"folder": str(tmp_path)})
    assert "kernels/" in sentence(reason)


@pytest.mark.parametrize("devices", ["2", '"two"', '""', '"0, 1"', "[]", "[true]", "[-1]", '"0,"'])
def test_what_chooses_no_devices_is_refused(tmp_path, devices):
    reason = refusal(project(tmp_path, f"[tool.perfci]\ndevices = {devices}\n"))

    assert (reason.kind, reason.facts["key"]) == ("setting_type", "devices")


def test_an_unknown_key_is_met_with_the_known_ones(tmp_path):
    reason = refusal(project(tmp_path, "[tool.perfci]\nzzz = 1\n"))

    assert reason.kind == "setting_not_known"
    assert reason.facts["known"] == ", ".join(KEYS)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("kernels = 3", "kernels"),
        ('time_limit_s = "long"', "time_limit_s"),
        ("time_limit_s = 0", "time_limit_s"),
        ("lock_wait_s = 0", "lock_wait_s"),
        ('lock_wait_s = "for ever"', "lock_wait_s"),
        ("time_limit_s = true", "time_limit_s"),
        ('environment = "PATH"', "environment"),
        ("environment = [1]", "environment"),
        ("fake = 1", "fake"),
        ('targets = "sm_90"', "targets"),
        ("targets = [90]", "targets"),
        ("targets = []", "targets"),
        ("cache_folder = true", "cache_folder"),
        ("language = 1", "language"),
        ('language = "de"', "language"),
    ],
)
def test_a_wrong_type_is_named_with_file_and_key(tmp_path, line, key):
    reason = refusal(project(tmp_path, f"[tool.perfci]\n{line}\n"))

    assert reason.kind == "setting_type"
    assert (reason.facts["path"], reason.facts["key"]) == (str(tmp_path / "pyproject.toml"), key)


@pytest.mark.parametrize("content", [b"[tool.perfci\n", b'x = "\xff"'])
def test_what_is_no_toml_is_named(tmp_path, content):
    project(tmp_path)
    (tmp_path / "pyproject.toml").write_bytes(content)

    reason = refusal(tmp_path)

    assert reason.kind == "settings_damaged"
    assert reason.facts["path"] == str(tmp_path / "pyproject.toml")


def test_a_secret_cannot_be_let_through_to_workers(tmp_path):
    reason = refusal(project(tmp_path, '[tool.perfci]\nenvironment = ["HF_TOKEN"]\n'))

    assert reason.kind == "setting_secret"
    assert reason.facts["name"] == "HF_TOKEN"


LINKED = [
    "reports",
    "reports/shards",
    "reports/shards/1",
    "baselines",
    "baselines/fake-one",
    "thresholds",
    "data",
    "data/locks",
]


@pytest.mark.parametrize("name", LINKED)
def test_a_link_in_the_place_of_a_folder_of_stored_files_is_refused_by_name(tmp_path, name):
    """A merge request could commit it, and a kernel's artefact would be unpacked into `.git`."""
    root = project(tmp_path, '[tool.perfci]\nlock_folder = "data/locks"\n')
    (root / ".git").mkdir()
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).symlink_to(root / ".git", target_is_directory=True)

    reason = refusal(root)

    assert reason.kind == "folder_linked"
    assert str(root / name) in sentence(reason)


def test_a_project_that_is_reached_by_a_link_and_links_to_files_are_fine(tmp_path):
    root = tmp_path / "real"
    (root / "reports" / "logs").mkdir(parents=True)
    project(root)
    (root / "reports" / "logs" / "relu.log").symlink_to("/dev/full")
    (tmp_path / "link").symlink_to(root)

    assert load(tmp_path / "link").root == root


@pytest.mark.parametrize("name", ["reports", "baselines", "thresholds"])
@pytest.mark.parametrize("place", ["/abs", "../beside", "a/../..", ".", ".git/hooks", "sub/.git"])
def test_what_perfci_writes_lies_in_a_folder_of_the_project(tmp_path, name, place):
    (tmp_path / "pyproject.toml").write_text(f'[tool.perfci]\n{name} = "{place}"\n')

    with pytest.raises(UsageError) as caught:
        load(tmp_path)

    assert (caught.value.reason.kind, caught.value.reason.facts["key"]) == ("setting_type", name)


@pytest.mark.parametrize("name", ["GPG_PASSPHRASE", "SESSION_COOKIE", "PGPASS", "NPM_AUTH", "SENTRY_DSN", "DB_PWD"])
def test_a_variable_whose_name_tells_of_a_secret_is_one(name):
    assert is_secret(name)


def test_settings_that_never_end_are_refused(tmp_path):
    (tmp_path / "pyproject.toml").symlink_to("/dev/zero")

    with pytest.raises(UsageError) as caught:
        load(tmp_path)

    assert caught.value.reason.kind == "settings_unreadable"
