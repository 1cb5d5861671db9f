"""`perfci profile --device npu`, whole, on the test device."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_a_profile_has_the_chips_own_counters_and_no_advice_about_what_it_lacks(perfci, tmp_path):
    project = tmp_path / "project"
    shutil.copytree(Path(__file__).parent / "project", project, ignore=shutil.ignore_patterns("reports", "__pycache__"))

    code, out, err = perfci(project, "profile", "scale", "--device", "npu", "--format", "json", "--case", "*cols=[23]*")

    assert code == 0, err
    answer = json.loads(out)
    assert (answer["source"], answer["note"]) == ("aic_metrics", None)
    for case in answer["cases"]:
        assert case["counters"] == {"cube": 0.0, "vector": 0.125, "mte": 0.75}
        assert case["bound"] == "memory"
        assert not [advice["id"] for advice in case["advice"] if "warps" in advice["id"]]
