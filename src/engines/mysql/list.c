/* list: all names with a prefix. */
#include "engines/mysql/sql.h"
#include "engines/mysql/view.h"

static char *words_for_list(struct my *my, const char *prefix)
{
    if (my->options.table)
        return sql_shed_list(my, prefix);
    if (my->options.mode == MODE_TABLE)
        return sql_table_list(prefix);
    return my->options.mode == MODE_ROW ? sql_row_list(my, prefix) : sql_list(my, prefix);
}

enum stile_status list_ask(const struct query *query, answer_fn *fn, void *data,
                           struct stile_error *err)
{
    struct my *my = my_of(query->engine);
    struct session *shared;
    char prefix[STORED_HEX_MAX];
    if (my->bare && !my->options.table)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "without the tables stile_* nobody knows the names: run `stile setup "
                         "URL`");
    name_hex(prefix, query->name, query->name_len);
    enum stile_status status = my_shared(&shared, my, err);
    return status ? status : session_send(shared, words_for_list(my, prefix), fn, data, err);
}

/* The server has sorted them by their bytes. */
enum stile_status list_tell(struct query *query, const struct answer *a, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    bool made = true;
    view_rewind(a);
    while (made && !status) {
        struct view view;
        status = view_next(&view, &made, a, err);
        if (!status && made && view.n > 0)
            query->engine->events->info(query, &view.info);
        view_free(&view);
    }
    return status;
}
