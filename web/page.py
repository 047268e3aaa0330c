# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a page, which is one file without anything to load:

    page.py page.html page.css MODULE.js... --scripts DIR... > page.c
    page.py page.html page.css MODULE.js... --scripts DIR... --wasm FILE --stories FILE... > play.html
    page.py --as-c play.html > play.c

The first is that of `stile sim --story`, as two C strings between which a run is put; the second, that
of `stile play`. The modules are joined in the order given: their imports, which name modules before
them, and the word "export" are left out, and no two modules may have the same name at their top. DIR
holds Lua scripts: the first sentence of each becomes part of the page.
"""
import argparse
import base64
import gzip
import json
import os
import re
import sys

RUN = "@run@"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def join(paths):
    """The modules as one script."""
    owners, parts = {}, []
    for path in paths:
        source = read(path)
        for name in re.findall(r'^import \{[^}]*\} from "\./([^"]+)";$', source, re.M):
            assert name in map(os.path.basename, paths[:paths.index(path)]), (path, name)
        source = re.sub(r"^import .*;\n", "", source, flags=re.M)
        source = re.sub(r"^export ", "", source, flags=re.M)
        for name in re.findall(r"^(?:const|let|class|function) (\w+)", source, re.M):
            assert name not in owners, "%s is in %s and in %s" % (name, path, owners[name])
            owners[name] = path
        parts.append(source)
    return "\n".join(parts)


def purposes(folders):
    """What each script is for, by its name: the sentence behind its name."""
    found = {}
    for folder in folders:
        engine = os.path.basename(os.path.dirname(folder))
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".lua"):
                continue
            comment = re.search(r"^-- %s: (.+\n(?:-- .+\n)*)--\n" % re.escape(name),
                                read(os.path.join(folder, name)), re.M)
            sentence = " ".join(comment.group(1).replace("\n-- ", "\n").split())
            found[engine + "/" + name] = sentence.rstrip(".")
    return found


def build(html_path, css_path, script_paths, folders, slots):
    """The page, with its slots filled."""
    script = join(script_paths).replace("@scripts@", json.dumps(purposes(folders), indent=1))
    assert "</" not in script
    text = read(html_path)
    for name, value in {**slots, "css": read(css_path), "script": script}.items():
        assert text.count("@%s@" % name) == 1, name
        text = text.replace("@%s@" % name, value)
    return text


def story_page(options):
    slots = {"csp": "", "before": "", "after": "",
             "data": '<script id="run" type="application/json">\n@run@\n</script>'}
    return build(options.html, options.css, options.module, options.scripts, slots)


def play_page(options):
    here = os.path.dirname(options.html)
    with open(options.wasm, "rb") as file:
        packed = gzip.compress(file.read(), 9, mtime=0)
    stories = [strip(read(path)) for path in options.stories]
    data = ('<script id="stories" type="application/json">%s</script>\n'
            '<script id="wasm" type="text/plain">%s</script>'
            % (json.dumps(stories).replace("<", "\\u003c"), base64.b64encode(packed).decode()))
    slots = {"csp": " 'wasm-unsafe-eval'", "data": data,
             "before": read(os.path.join(here, "play_before.html")),
             "after": read(os.path.join(here, "play_after.html"))}
    return build(options.html, options.css, options.module, options.scripts, slots)


def strip(story):
    """A story without its licence."""
    return re.sub(r"^# SPDX.*\n", "", story, flags=re.M)


def literal(name, text):
    print("\nconst char %s[] =" % name)
    for line in text.splitlines(keepends=True):
        data = "".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?'
                       else "\\%03o" % byte for byte in line.encode())
        print('    "%s"' % data)
    print("    ;")


def print_as_c(path):
    text = read(path)
    print("extern const char play_page[];\nextern const unsigned long play_page_len;")
    literal("play_page", text)
    print("const unsigned long play_page_len = sizeof play_page - 1;")


def main():
    if sys.argv[1] == "--as-c":
        print_as_c(sys.argv[2])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("html")
    parser.add_argument("css")
    parser.add_argument("module", nargs="+")
    parser.add_argument("--scripts", nargs="*", default=[])
    parser.add_argument("--stories", nargs="*", default=[])
    parser.add_argument("--wasm")
    options = parser.parse_args()
    if options.wasm:
        sys.stdout.reconfigure(encoding="utf-8")
        sys.stdout.write(play_page(options))
        return
    head, tail = story_page(options).split(RUN)
    print("extern const char page_head[], page_tail[];")
    literal("page_head", head)
    literal("page_tail", tail)


if __name__ == "__main__":
    main()
