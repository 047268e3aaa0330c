/* Locks that end with the process that holds them (a session of a database, a local lock) end when
 * the kernel closes its descriptors. The front has copies of those, so that they last until it has
 * seen the tree of a killed warden end. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

#define FDS_MAX 256

/* One call for all of them: what is not open is answered with POLLNVAL. */
static void find_open(unsigned char open[FDS_MAX / 8])
{
    struct pollfd fds[FDS_MAX];
    struct rlimit limit = {.rlim_cur = FDS_MAX};
    getrlimit(RLIMIT_NOFILE, &limit);
    nfds_t n = limit.rlim_cur < FDS_MAX ? (nfds_t)limit.rlim_cur : FDS_MAX;
    memset(open, 0, FDS_MAX / 8);
    for (nfds_t i = 0; i < n; i++)
        fds[i] = (struct pollfd){.fd = (int)i};
    if (poll(fds, n, 0) < 0)
        return;
    for (nfds_t i = 0; i < n; i++) {
        if (!(fds[i].revents & POLLNVAL))
            open[i / 8] |= (unsigned char)(1U << i % 8);
    }
}

void keep_begin(struct keep *keep)
{
    find_open(keep->open);
}

static bool is_socket(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

static size_t find_new(int fds[KEPT_MAX], const struct keep *keep, int life)
{
    unsigned char open[FDS_MAX / 8];
    size_t n = 0;
    if (life >= 0)
        fds[n++] = life;
    find_open(open);
    for (int fd = 0; fd < FDS_MAX && n < KEPT_MAX; fd++) {
        if ((open[fd / 8] & ~keep->open[fd / 8] & 1U << fd % 8) && is_socket(fd))
            fds[n++] = fd;
    }
    return n;
}

void keep_with_front(const struct keep *keep, struct stile_client *client, const struct link *link)
{
    int fds[KEPT_MAX];
    if (stile_client_caps(client)->lease == STILE_LEASE_CLAIM)
        return; /* it lasts as long as its lease, whatever becomes of us */
    size_t n = find_new(fds, keep, stile_client_life_fd(client));
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
    while (sendmsg(link->reports, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}
