"""The file that a run on a new chip leaves to be sent away."""

import zipfile

from perfci.core.settings import load
from perfci.extensions.npu import report_back


def test_nothing_from_outside_of_the_reports_is_sent_away_and_the_file_replaces_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr(report_back, "_run", lambda *_: "told\n")
    monkeypatch.setattr(report_back.smi, "ask", lambda *_: None)
    secret, project = tmp_path / "secret", tmp_path / "project"
    reports = project / "reports"
    (reports / "logs").mkdir(parents=True)
    (project / "kernels").mkdir()
    secret.mkdir()
    (secret / "key.log").write_text("secret")
    (reports / "logs" / "scale.log").write_text("printed")
    (reports / "logs" / "link.log").symlink_to(secret / "key.log")
    (reports / report_back.NAME).symlink_to(secret / "overwritten")

    with zipfile.ZipFile(report_back.write(load(project), "npu", "scale")) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}

    assert texts["logs/scale.log"] == "printed"
    assert texts["doctor.txt"] == "told\n"
    assert "secret" not in texts.values()
    assert not (secret / "overwritten").exists()
