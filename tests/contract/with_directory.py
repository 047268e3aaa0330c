# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a program of tests on a temporary directory:

    with_directory.py PROGRAM URL [FILTER]

In the URL, @DIRECTORY@ stands for it."""
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory(prefix="stile-test-") as directory:
    program, url, *rest = sys.argv[1:]
    sys.exit(subprocess.run([program, url.replace("@DIRECTORY@", directory), *rest], check=False).returncode)
