"""What a file reaches of those that it imports."""

from perfci.ops.fingerprint.reach import list_reached


def test_a_library_is_followed_and_not_what_it_needs_of_others(tmp_path, monkeypatch):
    """Else a library that names transformers had all of pandas read too, which took half a minute."""
    installed = tmp_path / "lib" / "site-packages"
    (installed / "gems").mkdir(parents=True)
    kernel = tmp_path / "op_triton.py"
    kernel.write_text("import inspect\nfrom gems import scale\n")
    (installed / "gems" / "__init__.py").write_text("from gems.scaling import scale\n")
    (installed / "gems" / "scaling.py").write_text("import pictures\n\n\ndef scale(x):\n    return pictures.draw(x)\n")
    (installed / "pictures.py").write_text("def draw(x):\n    return x\n")
    monkeypatch.syspath_prepend(str(installed))

    assert {path.name for path, _ in list_reached(kernel)} == {"op_triton.py", "__init__.py", "scaling.py"}
