# shellcheck shell=bash
# What cargo and the torch programs need to find libtorch: `. .ci/lib/torch-env.sh`, then use cargo as usual.
# Sourced, never run. The environment itself is made by `make setup`.

_torch_venv="${XDG_CACHE_HOME:-$HOME/.cache}/plexforge/torch-2.11.0"
_torch_site=
for _torch_dir in "$_torch_venv"/lib/python3.*/site-packages; do
    [ -d "$_torch_dir/torch/lib" ] && _torch_site=$_torch_dir
done
if [ -n "$_torch_site" ]; then
    export LIBTORCH_USE_PYTORCH=1
    export PATH="$_torch_venv/bin:$PATH"
    export LD_LIBRARY_PATH="$_torch_site/torch/lib:$_torch_site/nvidia/cu13/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
else
    echo "no libtorch in $_torch_venv: run \`make setup\`" >&2
fi
unset _torch_venv _torch_site _torch_dir
