#!/bin/sh
# Sets up $VENV with perfci and what it needs: sh requirements/setup.sh '.[dev]'. Called by make, safe to repeat.
#
# If $PYTHON has torch already (a GPU or NPU machine), the venv sees that torch and Triton and installs neither;
# otherwise torch's CPU build and Triton come from requirements/cpu.txt. A CUDA build is never downloaded.
set -eu

what=${1:-.}
python=${PYTHON:-python3}
venv=${VENV:-.venv}

fail() {
    echo "$1" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 ||
    fail "$python was not found: install Python 3.11 or newer (Debian: apt install python3), or name one with PYTHON=."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$python is $("$python" --version), and perfci needs 3.11 or newer: install one, or name one with PYTHON=."
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make virtual environments: install its venv module (Debian: apt install python3-venv)."

has_torch() {
    "$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'
}

# An interpreter that was upgraded or removed leaves a venv that does not start: make that one anew.
if ! "$venv/bin/python" -c '' 2>/dev/null; then
    rm -rf "$venv"
    if has_torch "$python"; then
        "$python" -m venv --system-site-packages "$venv"
        # Where $PYTHON is a venv itself, the new one sees the system's packages but not that venv's: add them.
        "$python" - "$venv" <<'END'
import pathlib, sys, sysconfig

if sys.prefix != sys.base_prefix:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = pathlib.Path(sys.argv[1], "lib", version, "site-packages", "parent.pth")
    place.write_text("".join(f"{path}\n" for path in sorted({sysconfig.get_path(p) for p in ("purelib", "platlib")})))
END
    else
        "$python" -m venv "$venv"
    fi
fi

pip="$venv/bin/python -m pip --disable-pip-version-check"
# Compiled below on all cores, which pip would do on one.
quick="--quiet --quiet --no-compile"
if grep -q 'include-system-site-packages = true' "$venv/pyvenv.cfg"; then
    echo "Setting up $venv beside the torch that $python has."
    # Held where they are, so that no dependency of a dependency moves them.
    "$venv/bin/python" - >"$venv/held.txt" <<'END'
import importlib.metadata as metadata

for name in ("torch", "triton", "pytorch-triton", "torch-npu", "triton-ascend"):
    try:
        print(f"{name}=={metadata.version(name)}")
    except metadata.PackageNotFoundError:
        pass
END
    extra=""
    [ -e /proc/driver/nvidia/version ] && extra="nvidia-ml-py>=12"
    $pip install $quick --constraint "$venv/held.txt" $extra --editable "$what"
else
    echo "Setting up $venv with torch's CPU build (once; about a minute)."
    install() {
        $pip install $quick ${1:+--extra-index-url "$1"} --requirement requirements/cpu.txt --editable "$what"
    }
    # Where pip's own sources have no CPU build, PyTorch's index does.
    install "${TORCH_INDEX:-}" || { [ -z "${TORCH_INDEX:-}" ] && install https://download.pytorch.org/whl/cpu; } ||
        fail "The set-up failed, see above. If pip found no torch of that version, name an index that has the CPU build:
TORCH_INDEX=https://download.pytorch.org/whl/cpu make check"
fi
# Not worth failing for: what is not compiled here is when it is first imported.
"$venv/bin/python" - <<'END' || :
import compileall, re, sysconfig

# Files of other Pythons fail, and are left. The packages' tests, a fifth of all text, are never imported.
compileall.compile_dir(sysconfig.get_path("purelib"), quiet=2, workers=0, rx=re.compile("/tests?/"))
END
