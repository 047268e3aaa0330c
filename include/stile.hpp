/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile for C++17: the functions of stile.h as objects that release what they hold.
 *
 *     stile::client client("redis://localhost");
 *     stile::lock lock(client, "nightly");
 *     stile::guard guard(lock);          // waits; the destructor releases
 *     write(data, guard.token());
 *     guard.release();                   // throws if the lock did not last
 *
 * Caveats first: those of stile.h hold here, too. A destructor cannot report that the lock was
 * lost: call guard::release() at the end of the work, and send the token along with each write. A
 * client outlives its locks, and a lock its guards: declare them in that order.
 *
 * What fails throws stile::error with its status. A lock that was not granted in time is no failure
 * for the try_ functions, which return false. All classes can be moved and not copied; a moved-from
 * object answers MISUSE. Nothing is allocated after a lock has been made, unless a call throws. */
#ifndef STILE_HPP
#define STILE_HPP

#include <stile.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace stile
{

class error : public std::runtime_error
{
    stile_status status_;
    int native_;

  public:
    explicit error(const stile_error &e)
        : std::runtime_error(e.message), status_(e.status), native_(e.native)
    {
    }
    explicit error(stile_status s)
        : std::runtime_error(stile_status_text(s)), status_(s), native_(0)
    {
    }
    stile_status status() const noexcept
    {
        return status_;
    }
    int native() const noexcept
    {
        return native_;
    } /* errno or the engine's code; 0: none */
};

class client
{
    stile_client *handle_ = nullptr;

  public:
    /* url nullptr: as for stile_client_open(). */
    explicit client(const char *url = nullptr,
                    const stile_client_options &options = stile_client_options_init())
    {
        stile_error e;
        if (stile_client_open(&handle_, url, &options, &e) != STILE_OK)
            throw error(e);
    }
    client(client &&from) noexcept : handle_(std::exchange(from.handle_, nullptr))
    {
    }
    client &operator=(client &&from) noexcept
    {
        if (this != &from)
            stile_client_close(std::exchange(handle_, std::exchange(from.handle_, nullptr)));
        return *this;
    }
    ~client()
    {
        stile_client_close(handle_);
    }

    void interrupt() noexcept
    {
        stile_client_interrupt(handle_);
    }
    stile_client *get() const noexcept
    {
        return handle_;
    } /* for the functions of stile.h */
};

class lock
{
    stile_lock *handle_ = nullptr;

    /* False: held by another until the end of the wait. */
    bool acquire_within(std::int64_t wait_ms)
    {
        stile_error e;
        stile_status status = stile_lock_acquire(handle_, wait_ms, &e);
        if (status != STILE_OK && status != STILE_HELD && status != STILE_TIMEOUT)
            throw error(e);
        return status == STILE_OK;
    }

  public:
    lock(client &owner, const char *name,
         const stile_lock_options &options = stile_lock_options_init())
    {
        stile_error e;
        if (stile_lock_new(&handle_, owner.get(), name, &options, &e) != STILE_OK)
            throw error(e);
    }
    lock(lock &&from) noexcept : handle_(std::exchange(from.handle_, nullptr))
    {
    }
    lock &operator=(lock &&from) noexcept
    {
        if (this != &from)
            stile_lock_free(std::exchange(handle_, std::exchange(from.handle_, nullptr)));
        return *this;
    }
    ~lock()
    {
        stile_lock_free(handle_);
    }

    /* Waits for ever; false only if the options limit the tries. */
    bool acquire()
    {
        return acquire_within(-1);
    }
    [[nodiscard]] bool try_acquire()
    {
        return acquire_within(0);
    }
    /* A wait that is negative or zero tries once. Finer durations must be rounded by the caller. */
    [[nodiscard]] bool try_acquire_for(std::chrono::milliseconds wait)
    {
        return acquire_within(wait.count() > 0 ? wait.count() : 0);
    }
    /* Throws LOST if it was no longer held. */
    void release()
    {
        stile_error e;
        if (stile_lock_release(handle_, &e) != STILE_OK)
            throw error(e);
    }
    void cancel() noexcept
    {
        (void)stile_lock_cancel(handle_);
    } /* from any thread */

    bool held() const noexcept
    {
        return stile_lock_held(handle_);
    }
    /* milliseconds::max(): as long as the process lives. */
    std::chrono::milliseconds remaining() const noexcept
    {
        return std::chrono::milliseconds(stile_lock_remaining_ms(handle_));
    }
    std::uint64_t token() const
    {
        std::uint64_t token;
        stile_status status = stile_lock_token(handle_, &token);
        if (status != STILE_OK)
            throw error(status);
        return token;
    }
    stile_lock *get() const noexcept
    {
        return handle_;
    }
};

/* Holds a lock for as long as it exists. */
class guard
{
    lock *held_ = nullptr;

  public:
    explicit guard(lock &l) : guard(l, l.acquire())
    {
    }
    guard(lock &l, std::chrono::milliseconds wait) : guard(l, l.try_acquire_for(wait))
    {
    }
    guard(guard &&from) noexcept : held_(std::exchange(from.held_, nullptr))
    {
    }
    guard &operator=(guard &&) = delete;
    ~guard()
    {
        if (held_)
            (void)stile_lock_release(held_->get(), nullptr);
    }

    /* Ends the work: throws LOST if the lock did not last until now. */
    void release()
    {
        lock *l = std::exchange(held_, nullptr);
        if (!l)
            throw error(STILE_MISUSE);
        l->release();
    }
    bool held() const noexcept
    {
        return held_ && held_->held();
    }
    std::uint64_t token() const
    {
        if (!held_)
            throw error(STILE_MISUSE);
        return held_->token();
    }

  private:
    guard(lock &l, bool granted) : held_(&l)
    {
        if (!granted)
            throw error(STILE_TIMEOUT);
    }
};

} // namespace stile

#endif
