#!/bin/sh
# install_node.sh FOLDER MANIFEST: install the packages of a package.json, for systems that run on Node.js. Without npm,
# or if the installation fails, these systems are reported and left out; the benchmark goes on without them.
set -u
folder=$1 manifest=$2

mkdir -p "$folder" && cp "$manifest" "$folder/package.json" || exit 1
npm install --prefix "$folder" --silent --no-package-lock --no-audit --no-fund ||
    echo "bench: left out: $manifest cannot be installed by npm" >&2
