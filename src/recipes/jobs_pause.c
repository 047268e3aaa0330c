#include "mutant.h"
#include "recipes/jobs.h"

#define PAUSE_MAX_MS (INT64_C(3600) * 1000)

int64_t jobs_pause_ms(int64_t first_ms, unsigned tries, uint64_t random)
{
    int64_t most = first_ms < PAUSE_MAX_MS ? first_ms : PAUSE_MAX_MS;
    for (unsigned i = 1; i < tries && most < PAUSE_MAX_MS; i++)
        most *= 2;
    if (most > PAUSE_MAX_MS)
        most = PAUSE_MAX_MS;
#ifdef MUTANT_JOBS_NO_JITTER
    return most;
#endif
    return (int64_t)(random % ((uint64_t)most + 1));
}
