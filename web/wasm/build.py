# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles the library, four engines and the simulator to WebAssembly:

    build.py --build DIR --sources DIR --out FILE.wasm [--depfile FILE]

DIR of --build has what Meson writes (scripts.c, rpc.pb-c.c); that of --sources has the unpacked
sources of Debian's packages (tools/page-sources), of which nothing is kept but the objects. Needs
clang, lld, wasi-libc and libclang-rt-14-dev-wasm32.
"""
import argparse
import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
INCLUDES = "/usr/include/wasm32-wasi"
LIBRARIES = "/usr/lib/wasm32-wasi"

# Folders whose C files are all compiled, but for those that need Linux or OpenSSL. The linker
# leaves out what is not called.
FOLDERS = {
    "src/base": ["build_tree.c"],
    "src/core": ["config.c", "modules.c"],
    "src/engines/kit": [],
    "src/engines/redis": [],
    "src/engines/redlock": [],
    "src/engines/etcd": [],
    "src/engines/zookeeper": [],
    "web/wasm": [],
}
FILES = ["src/io/loop.c"]
SIM = ["check", "check_claims", "check_waits", "engine_etcd", "engine_redis", "engine_redlock",
       "engine_zookeeper", "etcd_cluster", "etcd_foreign", "etcd_kv", "etcd_server", "etcd_store",
       "etcd_streams", "faults", "foreign", "grpc", "history", "memory", "net", "operators",
       "plain", "process", "redis_cluster", "redis_commands", "redis_faults", "redis_foreign",
       "redis_replica", "redis_server", "redis_store", "redis_text", "redlock_plots", "run", "script",
       "script_faults", "script_hand", "session_client", "session_server", "story", "users", "wall_clock", "workload", "world", "zookeeper_ensemble",
       "zookeeper_faults", "zookeeper_foreign", "zookeeper_server", "zookeeper_text", "zookeeper_tree"]
GENERATED = ["src/engines/redis/scripts.c", "src/engines/redlock/scripts.c", "src/engines/etcd/rpc.pb-c.c"]
# Lua without its programs and what scripts of Redis lack, of hiredis the reader of replies, all of
# nghttp2's library, and the runtime of protobuf-c.
OTHERS = {
    "lua5.1/src/*.c": ["lua.c", "luac.c", "print.c", "liolib.c", "loslib.c"],
    "hiredis/hiredis.c": [], "hiredis/read.c": [], "hiredis/sds.c": [],
    "nghttp2/lib/*.c": [],
    "protobuf-c/protobuf-c/protobuf-c.c": [],
}

FLAGS = ["--target=wasm32-wasi", "-O2", "-std=gnu11", "-nostdlibinc", "-D_GNU_SOURCE=",
         "-D_WASI_EMULATED_SIGNAL", "-D_WASI_EMULATED_MMAN", "-D_WASI_EMULATED_GETPID",
         "-DCLOCK_BOOTTIME=CLOCK_MONOTONIC", "-DNDEBUG", "-Wno-string-plus-int",
         "-Wno-format-zero-length", "-ffile-prefix-map=%s=." % ROOT]
QUIET = ["-w", "-DHAVE_ARPA_INET_H", "-DNGHTTP2_STATICLIB"]  # for sources that are not ours


def sources(options):
    ours = [path for folder, left_out in FOLDERS.items()
            for path in sorted(glob.glob(os.path.join(ROOT, folder, "*.c")))
            if os.path.basename(path) not in left_out]
    ours += [os.path.join(ROOT, path) for path in FILES]
    ours += [os.path.join(ROOT, "sim", name + ".c") for name in SIM]
    ours += [os.path.join(options.build, path) for path in GENERATED]
    ours += sorted(glob.glob(os.path.join(options.build, "src/engines/redis/guard", "*.c")))
    others = [path for pattern, left_out in OTHERS.items()
              for path in sorted(glob.glob(os.path.join(options.sources, pattern)))
              if os.path.basename(path) not in left_out]
    return ours, others


def compiler():
    return [shutil.which("ccache")] * bool(shutil.which("ccache")) + ["clang"]


def compile_one(path, folder, flags):
    target = os.path.join(folder, os.path.abspath(path).lstrip("/").replace("/", "_") + ".o")
    subprocess.run([*compiler(), *FLAGS, *flags, "-c", path, "-o", target, "-MMD"], check=True)
    return target


def write_nghttp2_version(options, folder):
    """nghttp2's configure would write this header."""
    template = os.path.join(options.sources, "nghttp2/lib/includes/nghttp2/nghttp2ver.h.in")
    target = os.path.join(folder, "include", "nghttp2")
    os.makedirs(target, exist_ok=True)
    with open(template, encoding="utf-8") as file:
        text = file.read().replace("@PACKAGE_VERSION@", "0").replace("@PACKAGE_VERSION_NUM@", "0")
    with open(os.path.join(target, "nghttp2ver.h"), "w", encoding="utf-8") as file:
        file.write(text)
    return os.path.dirname(target)


def compile_all(options, folder):
    include = ["-I" + os.path.join(HERE, "include"), "-isystem", INCLUDES, "-include", "glibc.h"]
    for path in "include", "src", ".":
        include.append("-I" + os.path.join(ROOT, path))
    # hiredis is included as <hiredis/hiredis.h>, which is below --sources.
    for path in "", "lua5.1/src", "nghttp2/lib/includes", "protobuf-c":
        include.append("-I" + os.path.join(options.sources, path))
    include += ["-I" + os.path.join(options.build, "src"), "-I" + write_nghttp2_version(options, folder)]
    ours, others = sources(options)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [pool.submit(compile_one, path, folder, include) for path in ours]
        work += [pool.submit(compile_one, path, folder, include + QUIET) for path in others]
        return [each.result() for each in work]


def builtins():
    done = subprocess.run(["clang", "--target=wasm32-wasi", "-print-libgcc-file-name"],
                          capture_output=True, text=True, check=True)
    return done.stdout.strip()


def link(objects, out):
    subprocess.run(["wasm-ld", "-m", "wasm32", "--gc-sections", "--no-entry", "--strip-all", "--export-table",
                    "--export=__stack_pointer", "--wrap=clock_gettime",
                    "--wrap=buffer_make_room", "-z", "stack-size=1048576", "-o", out,
                    os.path.join(LIBRARIES, "crt1-reactor.o"), "--export=_initialize", *objects,
                    "-L" + LIBRARIES, "-lc", "-lm", "-lwasi-emulated-signal", "-lwasi-emulated-mman",
                    "-lwasi-emulated-getpid", builtins()], check=True)


def write_depfile(path, out, folder):
    """Headers and sources, as the compiler has written them for each object."""
    needed = set()
    for name in glob.glob(os.path.join(folder, "*.d")):
        with open(name, encoding="utf-8") as file:
            needed.update(word for word in file.read().split(":", 1)[1].replace("\\\n", " ").split()
                          if not word.startswith("/usr/"))
    with open(path, "w", encoding="utf-8") as file:
        file.write("%s: %s\n" % (out, " ".join(sorted(needed))))


def main():
    parser = argparse.ArgumentParser()
    for name in "build", "sources", "out", "depfile":
        parser.add_argument("--" + name, required=name != "depfile")
    options = parser.parse_args()
    folder = options.out + ".objects"
    os.makedirs(folder, exist_ok=True)
    try:
        link(compile_all(options, folder), options.out)
    except subprocess.CalledProcessError as error:
        sys.exit("build.py: %s failed" % error.cmd[0])
    if options.depfile:
        write_depfile(options.depfile, options.out, folder)


main()
