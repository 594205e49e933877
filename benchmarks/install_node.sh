#!/bin/sh
# install_node.sh FOLDER MANIFEST: what a package.json names, for systems that run on Node.js. Without npm, or when it
# cannot be installed, it is named and left out; the benchmark goes on without it.
set -u
folder=$1 manifest=$2

mkdir -p "$folder" && cp "$manifest" "$folder/package.json" || exit 1
npm install --prefix "$folder" --silent --no-package-lock --no-audit --no-fund ||
    echo "bench: left out: $manifest cannot be installed by npm" >&2
