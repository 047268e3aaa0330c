/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile play: the page, which this program contains, as a file. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXIT_USAGE  64
#define EXIT_ENGINE 69
#define EXIT_OUTPUT 74
#define PATH_ROOM   4096

#define REQUEST_MAX 8192  /* bytes of a request's head */
#define PATIENCE_MS 10000 /* with a browser that is silent; meanwhile no other is served */

/* The build writes them: page.py. */
extern const char play_page[];
extern const unsigned long play_page_len;

static const char help[] =
    "usage: stile play [--out FILE | --serve PORT]\n"
    "\n"
    "Opens a page on which the library, Redis, Redlock and fencing can be watched\n"
    "step by step, and broken. It runs the real code in the browser and needs no\n"
    "network. Stories are text files: docs/play.md.\n"
    "\n"
    "      --out FILE          write the page to FILE and open nothing (default: none)\n"
    "      --serve PORT        serve the page at http://127.0.0.1:PORT/ until interrupted;\n"
    "                          0: any free port (default: none)\n"
    "  -h, --help              print this help\n"
    "\n"
    "Exit codes: 0, 64 usage, 69 PORT is in use, 74 FILE could not be written.\n";

static int fail(const char *path)
{
    fprintf(stderr, "stile play: %s: %s\n", path, strerror(errno));
    return EXIT_OUTPUT;
}

/* -1: errno. The file is closed in any case. */
static int write_page(FILE *file)
{
    bool written = fwrite(play_page, 1, play_page_len, file) == play_page_len;
    int why = errno;
    if (fclose(file) != 0)
        return -1;
    errno = why;
    return written ? 0 : -1;
}

static int write_to(const char *path)
{
    FILE *file = fopen(path, "we");
    return file == NULL || write_page(file) ? fail(path) : 0;
}

static const char *directory(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *temporary = getenv("TMPDIR");
    if (runtime != NULL && *runtime == '/')
        return runtime;
    return temporary != NULL && *temporary == '/' ? temporary : "/tmp";
}

/* A browser reads the file whenever it likes, so it stays. */
static int open_page(void)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/stile-play-XXXXXX.html", directory());
    int fd = mkstemps(path, (int)strlen(".html"));
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL || write_page(file))
        return fail(path);
    printf("%s\n", path);
    if (fflush(stdout) != 0)
        return EXIT_OUTPUT;
    if (getenv("DISPLAY") == NULL && getenv("WAYLAND_DISPLAY") == NULL)
        return 0;
    execlp("xdg-open", "xdg-open", path, (char *)NULL);
    fprintf(stderr, "stile play: no xdg-open; open this file in a browser\n");
    return 0;
}

/* ---- serving ---- */

/* False: it is silent, gone or too long. All that is read of it is its first line. */
static bool read_request(char request[REQUEST_MAX], int fd)
{
    size_t n = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (n < REQUEST_MAX - 1) {
        if (poll(&ready, 1, PATIENCE_MS) != 1)
            return false;
        ssize_t got = read(fd, request + n, REQUEST_MAX - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        request[n] = '\0';
        if (strstr(request, "\r\n\r\n") != NULL)
            return true;
    }
    return false;
}

static bool send_all(int fd, const char *bytes, size_t n)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    while (n > 0) {
        if (poll(&ready, 1, PATIENCE_MS) != 1)
            return false;
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

static void answer(int fd)
{
    char request[REQUEST_MAX], head[256];
    if (!read_request(request, fd))
        return;
    bool whole = strncmp(request, "GET / ", 6) == 0,
         known = whole || strncmp(request, "HEAD / ", 7) == 0;
    int n =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %s\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %lu\r\n"
                 "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
                 known ? "200 OK" : "404 Not Found", known ? play_page_len : 0);
    if (send_all(fd, head, (size_t)n) && whole)
        send_all(fd, play_page, play_page_len);
    shutdown(fd, SHUT_WR);
}

/* Only this machine reaches it; from another one, ssh -L does. -1: errno. */
static int listen_at(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 16) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        return -1;
    printf("http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    return fd;
}

/* A signal ends it. */
static int serve(const char *text)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || port > UINT16_MAX) {
        fprintf(stderr, "stile play: --serve %s: a port is a number from 0 to 65535\n", text);
        return EXIT_USAGE;
    }
    int fd = listen_at((uint16_t)port);
    if (fd < 0) {
        fprintf(stderr, "stile play: port %lu: %s\n", port, strerror(errno));
        return EXIT_ENGINE;
    }
    if (fflush(stdout) != 0)
        return EXIT_OUTPUT;
    for (;;) {
        int browser = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (browser < 0 && errno != EINTR && errno != ECONNABORTED)
            return fail("accept");
        if (browser < 0)
            continue;
        answer(browser);
        close(browser);
    }
}

static int misuse(void)
{
    fputs("stile play: see stile play --help\n", stderr);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"out", required_argument, NULL, 'o'},
                                          {"serve", required_argument, NULL, 's'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const char *out = NULL, *port = NULL;
    for (int option; (option = getopt_long(argc, argv, "h", known, NULL)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 || fflush(stdout) != 0 ? EXIT_OUTPUT : 0;
        if (option != 'o' && option != 's')
            return misuse();
        *(option == 'o' ? &out : &port) = optarg;
    }
    if (optind != argc || (out != NULL && port != NULL))
        return misuse();
    if (port != NULL)
        return serve(port);
    return out != NULL ? write_to(out) : open_page();
}
