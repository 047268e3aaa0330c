#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# localise.sh ARCHIVE OUT FOLDER COMPILER...: an archive of one object, in which what is hidden is
# local. Without this every internal name would be global in a program that is linked statically.
set -e
archive=$1 out=$2 folder=$3
shift 3
mkdir -p "$folder"
"$@" -r -nostdlib -o "$folder/stile.o" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive
objcopy --localize-hidden "$folder/stile.o"
rm -f "$out"
ar rcsD "$out" "$folder/stile.o"
