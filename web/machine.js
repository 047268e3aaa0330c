// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// The library, its engines and the simulator, compiled to WebAssembly (web/wasm), in this page.

const EBADF = 8;

/** What Lua raises; it leaves WebAssembly as an exception (web/wasm/include/setjmp.h). */
class Raised extends Error {}

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

class Machine {
  static async start(base64) {
    const machine = new Machine();
    const imports = { stile: machine.calls(), wasi_snapshot_preview1: machine.system() };
    const { instance } = await WebAssembly.instantiate(await unpack(base64), imports);
    machine.wasm = instance.exports;
    machine.wasm._initialize();
    return machine;
  }

  /** A function that Lua protects is called from here, so that an error can end it. */
  calls() {
    return {
      protect: (fn, lua, data) => {
        const stack = this.wasm.__stack_pointer.value;
        try {
          this.wasm.__indirect_function_table.get(fn)(lua, data);
        } catch (error) {
          if (!(error instanceof Raised)) throw error;
          this.wasm.__stack_pointer.value = stack;
        }
      },
      throw: () => {
        throw new Raised();
      },
    };
  }

  /** The simulator has its own clock and network: of the system it needs next to nothing. */
  system() {
    const known = {
      environ_sizes_get: (count, bytes) => this.words([count, 0], [bytes, 0]),
      environ_get: () => 0,
      clock_time_get: (clock, precision, at) => this.words([at, 0], [at + 4, 0]),
      fd_write: (fd, vectors, n, written) => this.write(vectors, n, written),
      proc_exit: (code) => {
        throw new Error(`the simulator has ended with ${code}`);
      },
    };
    return new Proxy(known, { get: (all, name) => all[name] ?? (() => EBADF) });
  }

  words(...pairs) {
    const view = new DataView(this.wasm.memory.buffer);
    for (const [at, value] of pairs) view.setUint32(at, value, true);
    return 0;
  }

  write(vectors, n, written) {
    const view = new DataView(this.wasm.memory.buffer);
    let total = 0;
    for (let i = 0; i < n; i++) {
      const at = view.getUint32(vectors + 8 * i, true), size = view.getUint32(vectors + 8 * i + 4, true);
      console.warn(this.text(at, size));
      total += size;
    }
    return this.words([written, total]);
  }

  text(at, size) {
    return new TextDecoder().decode(new Uint8Array(this.wasm.memory.buffer, at, size));
  }

  /** Calls fn with texts, which end in NUL there. */
  call(fn, ...texts) {
    const places = texts.map((text) => {
      const bytes = new TextEncoder().encode(text + "\0");
      const at = this.wasm.page_alloc(bytes.length);
      new Uint8Array(this.wasm.memory.buffer, at, bytes.length).set(bytes);
      return at;
    });
    const fine = this.wasm[fn](...places);
    for (const at of places) this.wasm.page_free(at);
    const written = this.text(this.wasm.page_json(), this.wasm.page_json_len());
    if (!fine) throw new Error(written || "the simulator refuses this");
    return JSON.parse(written);
  }

  story(text) {
    return this.call("page_run_story", text);
  }

  seed(engine, seed) {
    return this.call("page_run_seed", engine, String(seed));
  }
}

export { Machine };
