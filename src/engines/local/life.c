#include "engines/local/life.h"

#include <errno.h>
#include <fcntl.h>

#include "mutant.h"

static int byte_lock(int fd, int command, struct flock *lock)
{
    int rc;
    do
        rc = fcntl(fd, command, lock);
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return 0;
    return errno == EACCES ? EAGAIN : errno;
}

static struct flock one_byte(short type, uint64_t byte)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
}

int life_lock(int fd, uint64_t byte, bool exclusive)
{
    struct flock lock = one_byte(exclusive ? F_WRLCK : F_RDLCK, byte);
    return byte_lock(fd, F_OFD_SETLK, &lock);
}

int life_unlock(int fd, uint64_t byte)
{
    struct flock lock = one_byte(F_UNLCK, byte);
    return byte_lock(fd, F_OFD_SETLK, &lock);
}

bool life_is_locked(int fd, uint64_t byte)
{
    struct flock lock = one_byte(F_WRLCK, byte);
    return byte_lock(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool life_is_alive(int fd, uint64_t id)
{
    struct flock lock = one_byte(F_WRLCK, LIFE_IDS + (id & LIFE_ID_MASK));
    if (byte_lock(fd, F_OFD_GETLK, &lock) != 0)
        return true;
#ifdef MUTANT_LOCAL_DEAD_LIVE
    return true;
#endif
    return lock.l_type != F_UNLCK;
}
