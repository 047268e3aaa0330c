/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* For Lua, which uses it once, in luaD_rawrunprotected(lua_State *L, Pfunc f, void *ud).
 *
 * WebAssembly cannot jump up its stack; an exception of JavaScript can leave it. So "setjmp" calls
 * the function that is to be protected, through JavaScript, and is never 0: Lua does not call it
 * again.
 */
#ifndef STILE_WASM_SETJMP_H
#define STILE_WASM_SETJMP_H

struct lua_State;

typedef int jmp_buf[1];

/* Returns when fn has returned, or called wasm_throw(). */
__attribute__((import_module("stile"), import_name("protect"))) void
wasm_protect(void (*fn)(struct lua_State *, void *), struct lua_State *lua, void *data);
__attribute__((import_module("stile"), import_name("throw"), noreturn)) void wasm_throw(void);

#define setjmp(buffer)        (wasm_protect(f, L, ud), 1)
#define longjmp(buffer, what) wasm_throw()

#endif
