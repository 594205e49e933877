#!/bin/sh
# install.sh PYTHON FOLDER REQUIREMENTS: create a virtualenv for the systems that are compared with Rota. A package that
# cannot be installed is reported and left out; the benchmark goes on without it.
set -u
python=$1 folder=$2 requirements=$3

mkdir -p "$(dirname "$folder")"
echo '*' >"$(dirname "$folder")/.gitignore"
"$python" -m venv "$folder" || exit 1

install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

install -r "$requirements" && exit 0
echo "bench: $requirements cannot be installed as a whole; trying each line of it" >&2
grep -v '^#' "$requirements" | while read -r line; do
    install --retries 0 --no-deps "$line" || echo "bench: left out: $line" >&2
done
