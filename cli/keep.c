/* Locks that end with the process that holds them (a session of a database, a local lock) end when
 * the kernel closes its descriptors. The front has copies of those, so that they last until it has
 * seen the tree of a killed warden end. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

/* An engine's descriptors get the lowest numbers there are. */
#define FDS_MAX 128

static bool is_socket(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

/* One call for all of them: what is not open is answered with POLLNVAL. Those that we were started
 * with may be among them: the front has those as well. */
static size_t find_sockets(int fds[KEPT_MAX], int except)
{
    size_t n = 0;
    struct pollfd polled[FDS_MAX];
    for (int fd = 0; fd < FDS_MAX; fd++)
        polled[fd] = (struct pollfd){.fd = fd > STDERR_FILENO && fd != except ? fd : -1};
    if (poll(polled, FDS_MAX, 0) < 0)
        return n;
    for (int fd = 0; fd < FDS_MAX && n < KEPT_MAX; fd++) {
        if (polled[fd].fd >= 0 && !(polled[fd].revents & POLLNVAL) && is_socket(fd))
            fds[n++] = fd;
    }
    return n;
}

void keep_with_front(struct stile_client *client, const struct link *link)
{
    int fds[KEPT_MAX];
    size_t n = 0;
    if (stile_client_caps(client)->lease == STILE_LEASE_CLAIM)
        return; /* it lasts as long as its lease, whatever becomes of us */
    int life = stile_client_life_fd(client);
    if (life >= 0)
        fds[n++] = life; /* all that counts: sockets on their way would make the kernel tidy up */
    else
        n = find_sockets(fds, link->reports);
    if (n == 0)
        return;
    struct report word = {.kind = REPORT_KEEP};
    char rights[CMSG_SPACE(sizeof fds)] = {0};
    struct iovec part = {&word, sizeof word};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = rights,
                             .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(head), fds, n * sizeof(int));
    report(link, &message);
}
