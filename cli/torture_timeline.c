/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Draws what happened in `stile torture`: one lane for each worker, one for the user's script, and
 * time from left to right. Colours are names of locks; what was done to a worker is grey behind its
 * lane. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torture.h"

#define LEFT       70
#define LANE       26
#define TOP        40
#define WIDTH_MIN  900
#define WIDTH_MAX  6000
#define PER_SECOND 90
#define NARROW     0.4 /* pixels: a narrower hold right behind another one is part of it */

struct drawing {
    FILE *out;
    const struct findings *findings;
    const struct recording *recording;
    const struct plan *plan;
    double width, per_ns;
    double *right; /* of each lane: where its last hold ends */
};

/* A hold that is being drawn, by client. */
struct hold {
    uint64_t from_ns, deadline_ns, token;
    uint32_t name, claim;
    bool open;
};

static double x_of(const struct drawing *drawing, uint64_t ns)
{
    const struct recording *recording = drawing->recording;
    if (ns > recording->ended_ns)
        ns = recording->ended_ns;
    if (ns < recording->began_ns)
        ns = recording->began_ns;
    return LEFT + (double)(ns - recording->began_ns) * drawing->per_ns;
}

static double y_of(const struct drawing *drawing, uint32_t slot)
{
    return TOP + (double)(slot == NO_NUMBER ? drawing->plan->n_clients : slot) * LANE;
}

static double seconds(const struct drawing *drawing, uint64_t ns)
{
    return ((double)ns - (double)drawing->recording->began_ns) / 1e9;
}

/* ---- the ground ---- */

static void draw_scale(const struct drawing *drawing)
{
    uint64_t length = drawing->recording->ended_ns - drawing->recording->began_ns;
    double bottom = y_of(drawing, NO_NUMBER) + LANE;
    for (uint64_t s = 0; s <= length / NS_PER_S; s++) {
        double x = LEFT + (double)(s * NS_PER_S) * drawing->per_ns;
        fprintf(drawing->out,
                "<line class='tick' x1='%.1f' y1='%d' x2='%.1f' y2='%.1f'/>"
                "<text x='%.1f' y='%d'>%" PRIu64 " s</text>\n",
                x, TOP - 6, x, bottom, x + 2, TOP - 10, s);
    }
}

static void draw_lanes(const struct drawing *drawing)
{
    for (uint32_t i = 0; i <= drawing->plan->n_clients; i++) {
        double y = y_of(drawing, i);
        bool is_script = i == drawing->plan->n_clients;
        fprintf(drawing->out, "<line class='lane' x1='%d' y1='%.1f' x2='%.1f' y2='%.1f'/>", LEFT,
                y + LANE, drawing->width, y + LANE);
        if (is_script)
            fprintf(drawing->out, "<text x='4' y='%.1f'>servers</text>\n", y + 17);
        else
            fprintf(drawing->out, "<text x='4' y='%.1f'>worker %" PRIu32 "</text>\n", y + 17, i);
    }
}

static void draw_injections(const struct drawing *drawing)
{
    for (size_t i = 0; i < drawing->recording->n_injections; i++) {
        const struct injection *injection = &drawing->recording->injections[i];
        const char *text = injection_text(injection->kind);
        double x = x_of(drawing, injection->from_ns), y = y_of(drawing, injection->slot);
        double wide = x_of(drawing, injection->until_ns) - x;
        fprintf(drawing->out,
                "<rect class='%s' x='%.1f' y='%.1f' width='%.1f' height='%d'><title>%s at %.3f s"
                "</title></rect><text class='what' x='%.1f' y='%.1f'>%s</text>\n",
                text, x, y + 2, wide > 2 ? wide : 2, LANE - 4, text,
                seconds(drawing, injection->from_ns), x + 2, y + LANE - 4, text);
    }
}

/* ---- holds ---- */

static void draw_hold(struct drawing *drawing, const struct event *event, const struct hold *hold,
                      uint64_t until_ns, const char *how)
{
    uint32_t slot = drawing->recording->slots[event->client];
    double x = x_of(drawing, hold->from_ns), end = x_of(drawing, until_ns);
    bool is_plain = how[0] == '\0';
    if (is_plain && end < drawing->right[slot] + NARROW)
        return;
    drawing->right[slot] = end;
    fprintf(
        drawing->out,
        "<rect class='n%" PRIu32 "' x='%.2f' y='%.1f' width='%.2f' height='9'><title>lock %" PRIu32
        ", token %" PRIu64 ": %.3f to %.3f s%s</title></rect>\n",
        hold->name % 8, x, y_of(drawing, slot) + 4, end - x > NARROW ? end - x : NARROW, hold->name,
        hold->token, seconds(drawing, hold->from_ns), seconds(drawing, until_ns), how);
}

static void draw_mark(const struct drawing *drawing, const struct event *event, const char *class,
                      const char *text)
{
    uint32_t slot = drawing->recording->slots[event->client];
    fprintf(drawing->out,
            "<circle class='%s' cx='%.1f' cy='%.1f' r='3'><title>%s at %.3f s</title></circle>\n",
            class, x_of(drawing, event->ns), y_of(drawing, slot) + 8, text,
            seconds(drawing, event->ns));
}

static void end_hold(struct drawing *drawing, struct hold *hold, const struct event *event,
                     const char *how)
{
    uint64_t until = hold->deadline_ns < event->ns ? hold->deadline_ns : event->ns;
    if (hold->open)
        draw_hold(drawing, event, hold, until, how);
    hold->open = false;
}

static void draw_event(struct drawing *drawing, struct hold *hold, const struct event *event,
                       const uint32_t *names)
{
    switch (event->kind) {
    case EVENT_GRANTED:
        *hold = (struct hold){event->ns,           event->deadline_ns, event->token,
                              names[event->claim], event->claim,       true};
        return;
    case EVENT_RENEWED:
        hold->deadline_ns = event->deadline_ns;
        return;
    case EVENT_RELEASED:
        return end_hold(drawing, hold, event, "");
    case EVENT_LOST:
        end_hold(drawing, hold, event, ", lost");
        return draw_mark(drawing, event, "lost", "the loss was reported");
    case EVENT_DIED:
        return end_hold(drawing, hold, event, ", killed");
    case EVENT_WROTE:
        if (event->outcome == WRITE_REFUSED)
            draw_mark(drawing, event, "refused", "a late write was refused by the guard");
        return;
    default:
        return;
    }
}

static bool draw_holds(struct drawing *drawing)
{
    const struct history *history = &drawing->findings->history;
    struct hold *holds = calloc(history->n_clients + 1, sizeof *holds);
    uint32_t *names = calloc(history->n_claims + 1, sizeof *names);
    drawing->right = calloc(drawing->plan->n_clients + 1, sizeof *drawing->right);
    bool able = holds != NULL && names != NULL && drawing->right != NULL;
    for (size_t i = 0; able && i < history->n; i++) {
        const struct event *event = &history->events[i];
        if (event->kind == EVENT_ASKED)
            names[event->claim] = event->name;
        if (event->kind != EVENT_FAULT && event->kind != EVENT_HEALED)
            draw_event(drawing, &holds[event->client], event, names);
    }
    free(holds);
    free(names);
    free(drawing->right);
    return able;
}

static void draw_violation(const struct drawing *drawing)
{
    const struct verdict *verdict = &drawing->findings->verdict;
    const struct history *history = &drawing->findings->history;
    for (size_t i = 0; !verdict->holds && i < verdict->violation.n_events; i++) {
        double x = x_of(drawing, history->events[verdict->violation.events[i]].ns);
        fprintf(drawing->out, "<line class='broken' x1='%.1f' y1='%d' x2='%.1f' y2='%.1f'/>\n", x,
                TOP, x, y_of(drawing, NO_NUMBER) + LANE);
    }
}

/* ---- the whole ---- */

static const char style[] =
    "<style>text{font:11px sans-serif;fill:#333}.what{font-size:9px;fill:#666}"
    ".tick{stroke:#eee}.lane{stroke:#ddd}.stop,.all,.break{fill:#ddd}.cut,.reset,.slow{fill:#fd8}"
    ".kill{fill:#000}.fault{fill:#f99}.lost{fill:#f60}.refused{fill:#c0c}.broken{stroke:#f00;"
    "stroke-width:2}.n0{fill:#36c}.n1{fill:#2a7}.n2{fill:#a52}.n3{fill:#639}.n4{fill:#088}"
    ".n5{fill:#a08}.n6{fill:#680}.n7{fill:#357}</style>\n";

static bool draw(struct drawing *drawing)
{
    uint64_t length = drawing->recording->ended_ns - drawing->recording->began_ns;
    double wide = (double)length / 1e9 * PER_SECOND;
    wide = wide < WIDTH_MIN ? WIDTH_MIN : wide > WIDTH_MAX ? WIDTH_MAX : wide;
    drawing->per_ns = wide / (double)(length > 0 ? length : 1);
    drawing->width = LEFT + wide;
    fprintf(drawing->out, "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f'>\n%s",
            drawing->width + 30, y_of(drawing, NO_NUMBER) + 2 * LANE, style);
    draw_scale(drawing);
    draw_lanes(drawing);
    draw_injections(drawing);
    bool able = draw_holds(drawing);
    draw_violation(drawing);
    fputs("</svg>\n", drawing->out);
    return able;
}

static bool is_html(const char *path)
{
    size_t len = strlen(path);
    return len > 5 && strcmp(path + len - 5, ".html") == 0;
}

static bool draw_page(struct drawing *drawing)
{
    const struct tally *plain = &drawing->findings->tallies[PLAIN];
    const struct tally *guarded = &drawing->findings->tallies[GUARDED];
    fputs("<!doctype html><meta charset='utf-8'><title>stile torture</title>\n"
          "<body style='font-family:sans-serif'><h1>stile torture</h1>\n",
          drawing->out);
    fprintf(drawing->out,
            "<p>%zu acquisitions. Updates lost without the guard: %zu of %zu; with it: %zu of "
            "%zu.</p>\n<p>Bars are holds, coloured by lock. Grey: stopped. Yellow: cut off, reset "
            "or slow. Black: killed. Red: a server was broken. Orange dots: a loss was reported. "
            "Purple dots: a late write was refused.</p>\n<div style='overflow-x:auto'>\n",
            drawing->recording->grants, plain->lost, plain->accepted, guarded->lost,
            guarded->accepted);
    bool able = draw(drawing);
    fputs("</div>\n", drawing->out);
    return able;
}

bool timeline_write(const char *path, const struct findings *findings,
                    const struct recording *recording, const struct plan *plan)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    struct drawing drawing = {
        .out = out, .findings = findings, .recording = recording, .plan = plan};
    if (out == NULL) {
        say("torture: --timeline: %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool able = is_html(path) ? draw_page(&drawing) : draw(&drawing);
    bool written = fflush(out) == 0 && !ferror(out);
    int error = errno;
    fclose(out);
    if (written && able)
        return true;
    say("torture: --timeline: %s: %s", path, able ? strerror(error) : "out of memory");
    return false;
}
