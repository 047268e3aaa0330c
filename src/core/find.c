#include "core/find.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engines/module.h"

/* A new module is one line here. */
static const struct module {
    const char *schemes; /* separated by spaces */
    const char *name;    /* of the file, without .so; also the build's option */
} modules[] = {
    {"redis rediss redis+unix redis+sentinel rediss+sentinel redis+cluster rediss+cluster redlock "
     "redlocks",
     "redis"},
    {"postgres postgresql", "postgres"},
    {"mysql mysqls mariadb", "mysql"},
    {"etcd etcds", "etcd"},
    {"zk zks", "zookeeper"},
};

#define N_MODULES (sizeof modules / sizeof modules[0])

static bool has_word(const char *words, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = words; *at;) {
        size_t n = strcspn(at, " ");
        if (n == len && strncmp(at, word, len) == 0)
            return true;
        at += n + strspn(at + n, " ");
    }
    return false;
}

static const struct engine_class *search(const struct engine_class *const *classes,
                                         const char *scheme)
{
    for (; *classes; classes++)
        if (has_word((*classes)->schemes, scheme))
            return *classes;
    return NULL;
}

static void add_words(char *list, size_t size, const char *words)
{
    size_t used = strlen(list);

    snprintf(list + used, size - used, "%s%s", used ? " " : "", words);
}

static enum stile_status no_such_engine(const char *scheme, struct stile_error *err)
{
    char known[200] = "";

    for (size_t i = 0; engine_classes[i]; i++)
        add_words(known, sizeof known, engine_classes[i]->schemes);
    for (size_t i = 0; i < N_MODULES; i++)
        add_words(known, sizeof known, modules[i].schemes);
    return error_set(err, STILE_MISUSE, 0, "no engine for '%s:' URLs; there is: %s", scheme, known);
}

/* ---- modules ---- */

static enum stile_status check(const struct engine_module *module, const char *path,
                               struct stile_error *err)
{
    if (!module)
        return error_set(err, STILE_UNSUPPORTED, 0, "%s is not a module of stile", path);
    if (module->abi != ENGINE_ABI || strcmp(module->version, STILE_VERSION) != 0)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "%s is of another build than this library (" STILE_VERSION
                         "): install both together",
                         path);
    return STILE_OK;
}

/* It stays for good: threads, exit handlers and open clients of it may outlive any count of ours.
 */
static enum stile_status load(const struct engine_module **module, const char *path,
                              struct stile_error *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!handle)
        return error_set(err, STILE_UNSUPPORTED, 0, "loading the engine: %s", dlerror());
    *module = dlsym(handle, ENGINE_MODULE_SYMBOL);
    return check(*module, path, err);
}

static enum stile_status load_named(const struct engine_module **module, const char *name,
                                    struct stile_error *err)
{
    const char *directory = secure_getenv("STILE_MODULES");
    char path[4096];

    if (!directory || !*directory)
        directory = STILE_MODULE_DIR;
    int n = snprintf(path, sizeof path, "%s/%s.so", directory, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(err, STILE_MISUSE, 0, "$STILE_MODULES is too long");
    if (access(path, F_OK) != 0)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "this engine is not installed, there is no %s: build stile with "
                         "-D%s=enabled and install it",
                         path, name);
    return load(module, path, err);
}

enum stile_status find_engine(const struct engine_class **class, const char *scheme,
                              struct stile_error *err)
{
    const struct engine_module *module;

    *class = search(engine_classes, scheme);
    for (size_t i = 0; !*class && i < N_MODULES; i++) {
        if (!has_word(modules[i].schemes, scheme))
            continue;
        enum stile_status status = load_named(&module, modules[i].name, err);
        if (status)
            return status;
        *class = search(module->classes, scheme);
    }
    return *class ? STILE_OK : no_such_engine(scheme, err);
}
