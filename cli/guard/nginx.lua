-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- The guard: every worker runs this, and they meet in a shared dictionary and in a directory.
--
-- The dictionary holds, per resource:
--   R resource          the highest token (19 digits), then '.', or 'w' while requests with other
--                       tokens may be in flight
--   I resource          the issuer, if one was given
--   F worker resource   the token of this worker's requests in flight, and when they count as
--                       ended (0: when they have)
-- A request writes F and then reads R; a raise writes R and then reads every F. So either the
-- request sees the raise and is refused, or the raise sees the request and waits for it.
--
-- Values are replaced by values of the same length, and new keys are added with safe_add: a full
-- dictionary refuses a request, and never forgets a token.
--
-- The directory holds:
--   journal   one line per raise, on disk before the raised token passes
--   workers   one line per worker, locked as long as its process lives; and the lock for raises
--   reset     lines TOKEN<tab>ISSUER<tab>RESOURCE, written by the operator for the next reload
local ffi = require "ffi"
local base = require "resty.core.base"

local byte, char, format, rep, sub = string.byte, string.char, string.format, string.rep, string.sub
local find, gsub, match = string.find, string.gsub, string.match
local C, tonumber = ffi.C, tonumber

ffi.cdef [[
struct stile_time { long seconds, nanoseconds; };
struct stile_range { short type, whence; long start, length; int pid; };
int clock_gettime(int clock, struct stile_time *time);
int open(const char *path, int flags, ...);
int close(int fd);
int fcntl(int fd, int command, ...);
int fdatasync(int fd);
int fsync(int fd);
int rename(const char *from, const char *to);
long lseek(int fd, long offset, int whence);
long write(int fd, const char *data, size_t size);
long pread(int fd, char *data, size_t size, long offset);
long pwrite(int fd, const char *data, size_t size, long offset);
]]

-- Of Linux on 64 bits.
local O_RDONLY, O_WRONLY, O_RDWR = 0, 1, 2
local O_CREAT, O_TRUNC, O_APPEND, O_CLOEXEC = 0x40, 0x200, 0x400, 0x80000
local F_OFD_GETLK, F_OFD_SETLK, F_WRLCK, F_UNLCK = 36, 37, 1, 2
local CLOCK_BOOTTIME, SEEK_END, MODE_0600, ENOENT = 7, 2, 384, 2

local TOKEN_DIGITS, TOKEN_MAX = 19, "9223372036854775807"
local NO_TOKEN = rep("0", TOKEN_DIGITS)
local IN_FLIGHT = rep("0", 15) -- in place of the time at which a mark ends
local RESOURCE_MAX, ISSUER_MAX, HEADERS_MAX = 512, 600, 100
local SLOTS, SLOT_SIZE = 512, 44 -- lines of the file "workers"
local LOCK_AT = SLOTS * SLOT_SIZE
local BLANK = rep(" ", SLOT_SIZE - 1) .. "\n"
local COMPACT_FROM = 1048576 -- bytes that a journal may grow beyond twice its compact size
local PAUSE_MIN_S, PAUSE_MAX_S, JOIN_PAUSE_S = 0.001, 0.05, 0.02

local M = {}
local settings, dict
local workers_fd    -- each worker opens the file itself: locks belong to the open file
local own           -- {instance, generation, at}: this worker's line in the file "workers"
local flights = {}  -- by resource: what this worker has in flight, as long as its F key exists
local held = {}     -- by request: its entry of flights
local answered = {} -- by request: the upstream's answer has come to its end

-- Time that goes on while the machine sleeps and that nobody sets.
local clock = ffi.new("struct stile_time")
local function now_ms()
    C.clock_gettime(CLOCK_BOOTTIME, clock)
    return tonumber(clock.seconds) * 1000 + math.floor(tonumber(clock.nanoseconds) / 1e6)
end

-- The address of the request: it stays the same across internal redirects, which clear ngx.ctx.
local function request_address()
    return tonumber(ffi.cast("uintptr_t", base.get_request()))
end

---- Files ----

local function path(name)
    return settings.state .. "/" .. name
end

local function open(name, flags)
    local fd = C.open(name, flags + O_CLOEXEC, ffi.cast("int", MODE_0600))
    if fd < 0 then
        error("cannot open " .. name .. " (errno " .. ffi.errno() .. ")", 0)
    end
    return fd
end

-- A leading newline ends what a killed worker may have left of its line. The checksum comes last, so
-- that such a rest has none.
local function journal_line(token, flag, issuer, resource)
    local fields = gsub(token, "^0+", "", 1) .. "\t" .. flag .. "\t" .. issuer .. "\t" .. resource
    return format("\n%s\t%08x", fields, ngx.crc32_long(fields))
end

-- How far a line may have come, by its tabs; and NULs: what was not on disk at a power cut.
local UNFINISHED = {"^%d*$", "^%d*\t[.w]?$", "^%d*\t[.w]\t[^\t]*$", "^%d*\t[.w]\t[^\t]*\t[^\t]*$",
                    "^%d*\t[.w]\t[^\t]*\t[^\t]+\t%x?%x?%x?%x?%x?%x?%x?$", "%z"}

local function is_unfinished(line)
    for _, pattern in ipairs(UNFINISHED) do
        if find(line, pattern) then
            return true
        end
    end
    return false
end

-- nil for a line that is unfinished. One that is damaged may be any resource's: that is an error.
local function parse_line(line)
    local fields, sum = match(line, "^(.*)\t(%x%x%x%x%x%x%x%x)$")
    if fields and tonumber(sum, 16) == ngx.crc32_long(fields) then
        local token, flag, issuer, resource = match(fields, "^(%d*)\t([.w])\t([^\t]*)\t([^\t]+)$")
        return resource, token, flag, issuer
    elseif not is_unfinished(line) then
        error("a damaged line in " .. path("journal") .. ", so a highest token is not known: " .. line, 0)
    end
end

local function pad(token)
    return rep("0", TOKEN_DIGITS - #token) .. token
end

-- The last line of each resource.
local function read_journal()
    local last, damaged = {}, 0
    local file, problem, errno = io.open(path("journal"), "rb")
    if not file then
        return errno == ENOENT and last or error(problem, 0)
    end
    for line in file:lines() do
        local resource, token, flag, issuer = parse_line(line)
        if resource then
            last[resource] = {pad(token), flag, issuer}
        elseif line ~= "" then
            damaged = damaged + 1
        end
    end
    file:close()
    if damaged > 0 then
        ngx.log(ngx.WARN, "stile guard: ", damaged, " unfinished lines in ", path("journal"))
    end
    return last
end

local function write_all(fd, text, sync)
    return C.write(fd, text, #text) == #text and (not sync or sync(fd) == 0)
end

-- Replaces the journal by one line per resource.
local function compact(last)
    local lines = {}
    for resource, entry in pairs(last) do
        lines[#lines + 1] = journal_line(entry[1], entry[2], entry[3], resource)
    end
    local text = table.concat(lines)
    local fd = open(path("journal.new"), O_WRONLY + O_CREAT + O_TRUNC)
    local written = write_all(fd, text, C.fsync)
    C.close(fd)
    local directory = open(settings.state, O_RDONLY)
    written = written and C.rename(path("journal.new"), path("journal")) == 0
        and C.fsync(directory) == 0
    C.close(directory)
    if not written then
        error("cannot write " .. path("journal"), 0)
    end
    dict:safe_set("compact", #text)
end

-- The file is opened anew each time: another worker may have compacted it. Raises are rare.
local function append(line, sync)
    local fd = open(path("journal"), O_WRONLY + O_APPEND + O_CREAT)
    local written = write_all(fd, line, sync)
    local size = tonumber(C.lseek(fd, 0, SEEK_END))
    C.close(fd)
    if written and size > 2 * (dict:get("compact") or 0) + COMPACT_FROM then
        compact(read_journal())
    end
    return written
end

---- The lines and locks of the file "workers" ----

local range = ffi.new("struct stile_range")
local function set_range(kind, start, length)
    range.type, range.whence, range.start, range.length, range.pid = kind, 0, start, length, 0
    return range
end

local function try_lock(start, length)
    return C.fcntl(workers_fd, F_OFD_SETLK, set_range(F_WRLCK, start, length)) == 0
end

local function locked_by_another(start, length)
    local failed = C.fcntl(workers_fd, F_OFD_GETLK, set_range(F_WRLCK, start, length)) ~= 0
    return failed or range.type ~= F_UNLCK
end

-- Runs work(...) while no other worker does. Work never yields, so one worker never runs it twice
-- at a time. Returns nil if another worker is at it: the event loop must not wait for a disk.
local function with_lock(work, ...)
    if not try_lock(LOCK_AT, 1) then
        return nil
    end
    local fine, result = pcall(work, ...)
    C.fcntl(workers_fd, F_OFD_SETLK, set_range(F_UNLCK, LOCK_AT, 1))
    if not fine then
        error(result, 0)
    end
    return result
end

local buffer = ffi.new("char[?]", LOCK_AT)
local function read_slots()
    local size = tonumber(C.pread(workers_fd, buffer, LOCK_AT, 0))
    local text, slots = ffi.string(buffer, math.max(size, 0)), {}
    for at = 0, #text - SLOT_SIZE, SLOT_SIZE do
        local instance, generation = match(text, "^(%x+) (%d+)\n", at + 1)
        if instance then
            slots[#slots + 1] = {instance = instance, generation = generation, at = at}
        end
    end
    return slots
end

local function write_slot(at, line)
    if C.pwrite(workers_fd, line, SLOT_SIZE, at) ~= SLOT_SIZE or C.fdatasync(workers_fd) ~= 0 then
        error("cannot write " .. path("workers"), 0)
    end
end

local function take_slot(instance)
    local used = {}
    for _, slot in ipairs(read_slots()) do
        used[slot.at] = true
    end
    for at = 0, LOCK_AT - SLOT_SIZE, SLOT_SIZE do
        if not used[at] and try_lock(at, SLOT_SIZE) then
            local generation = format("%010d", dict:incr("generation", 1))
            -- Present from the start, so that a full dictionary can still record a death.
            assert(dict:safe_set("D" .. generation, 0))
            write_slot(at, instance .. " " .. generation .. "\n")
            return {instance = instance, generation = generation, at = at}
        end
    end
    error("more than " .. SLOTS .. " workers", 0)
end

---- Requests in flight ----

-- Makes the request visible to raises. Returns nil if it cannot pass now anyway.
local function announce(resource, token)
    local flight = flights[resource]
    if not flight then
        local key = "F" .. own.generation .. " " .. resource
        if not dict:safe_add(key, token .. IN_FLIGHT) then
            return nil, "full"
        end
        flight = {resource = resource, key = key, token = token, count = 0, ends_ms = 0}
        flights[resource] = flight
    elseif flight.token ~= token and (flight.count > 0 or flight.ends_ms > now_ms()) then
        return nil
    elseif flight.count == 0 then
        flight.token = token
        dict:safe_set(flight.key, token .. IN_FLIGHT)
    end
    flight.count = flight.count + 1
    return flight
end

local function withdraw(flight)
    flight.count = flight.count - 1
    if flight.count > 0 then
        return
    elseif flight.ends_ms > 0 and flight.ends_ms > now_ms() then
        dict:safe_set(flight.key, flight.token .. format("%015d", flight.ends_ms))
    else
        dict:delete(flight.key)
        flights[flight.resource] = nil
    end
end

-- When a dead worker's requests count as ended. Nobody saw when it died, so the time runs from the
-- moment its death is noticed: by the worker that takes its place, or by a raise.
local function death_ends_ms(slot)
    local key = "D" .. slot.generation
    local ends_ms = dict:get(key)
    if not ends_ms or ends_ms == 0 then
        ends_ms = now_ms() + settings.settle_ms
        dict:safe_set(key, ends_ms)
    end
    return ends_ms
end

-- The F keys of a dead worker stay, a few hundred bytes each, and mean nothing: no generation comes
-- twice.
local function bury(slot)
    write_slot(slot.at, BLANK)
    dict:delete("D" .. slot.generation)
end

local function is_dead(slot)
    return slot.at ~= own.at and not locked_by_another(slot.at, SLOT_SIZE)
end

-- True if this worker has nothing in flight that a holder of token would have to wait for.
local function worker_is_drained(slot, resource, token)
    if slot.instance ~= own.instance then -- of an nginx that was killed with requests in flight
        if now_ms() < dict:get("unknown_until") then
            return false
        end
        bury(slot)
        return true
    end
    local mark = dict:get("F" .. slot.generation .. " " .. resource)
    local ends_ms = mark and tonumber(sub(mark, TOKEN_DIGITS + 1)) or 0
    if is_dead(slot) and now_ms() >= death_ends_ms(slot) then
        bury(slot)
        return true
    end
    return not mark or sub(mark, 1, TOKEN_DIGITS) == token
        or ends_ms > 0 and now_ms() >= ends_ms
end

-- Opens the resource for its highest token once nothing else is in flight. Under the lock.
local function settle(resource, token)
    for _, slot in ipairs(read_slots()) do
        if not worker_is_drained(slot, resource, token) then
            return false
        end
    end
    dict:safe_set("R" .. resource, token .. ".")
    -- Without a sync: if this line is lost, requests wait once more after a restart.
    pcall(append, journal_line(token, ".", dict:get("I" .. resource) or "", resource))
    return true
end

---- The rule ----

-- "foreign", "stale" or nil.
local function compare(request)
    local issuer = request.issuer ~= "" and dict:get("I" .. request.resource)
    local record = dict:get("R" .. request.resource) or NO_TOKEN
    if issuer and issuer ~= request.issuer then
        return "foreign"
    elseif request.token < sub(record, 1, TOKEN_DIGITS) then -- of the same length, so by bytes
        return "stale"
    end
end

-- New resources leave a quarter of the memory to the requests in flight of those that are known.
local function has_room()
    return dict:free_space() > dict:capacity() / 4
end

-- Remembers the token, on disk first. Returns nil, or why it could not.
local function raise(request, record)
    local resource, flag = request.resource, record and "w" or "."
    local names_issuer = request.issuer ~= "" and not dict:get("I" .. resource)
    if not record and not (has_room() and dict:safe_add("R" .. resource, NO_TOKEN .. "w"))
        or names_issuer and not dict:safe_add("I" .. resource, request.issuer) then
        return "full"
    end
    local line = journal_line(request.token, flag, dict:get("I" .. resource) or "", resource)
    local fine, written = pcall(append, line, C.fdatasync)
    if not fine or not written then
        ngx.log(ngx.ERR, "stile guard: cannot write ", path("journal"), " ", tostring(written))
        if names_issuer then
            dict:delete("I" .. resource)
        end
        return "unwritten"
    end
    dict:safe_set("R" .. resource, request.token .. flag)
end

-- Under the lock. "open": the request may try to pass.
local function decide_alone(request)
    local refusal = compare(request)
    if refusal then
        return refusal
    end
    local record = dict:get("R" .. request.resource)
    local names_issuer = request.issuer ~= "" and not dict:get("I" .. request.resource)
    if not record or names_issuer or sub(record, 1, TOKEN_DIGITS) < request.token then
        local problem = raise(request, record)
        if problem then
            return problem
        end
        record = dict:get("R" .. request.resource)
    end
    local open_now = byte(record, -1) == byte(".") or settle(request.resource, request.token)
    return open_now and "open" or "wait"
end

local function decide(request)
    return compare(request) or with_lock(decide_alone, request) or "wait"
end

local function is_open(request)
    return (request.issuer == "" or dict:get("I" .. request.resource) == request.issuer)
        and dict:get("R" .. request.resource) == request.token .. "."
end

-- "pass", "full", or nil if it is not open for this token.
local function try_to_pass(request)
    local flight, problem = announce(request.resource, request.token)
    if not flight then
        return problem
    elseif is_open(request) then
        local address = request_address()
        local before = held[address] -- the same request, before an internal redirect
        held[address] = flight
        if before then
            withdraw(before)
        end
        return "pass"
    end
    withdraw(flight)
end

local function attempt(request)
    local verdict = own and (try_to_pass(request) or decide(request)) or "wait"
    return verdict == "open" and (try_to_pass(request) or "wait") or verdict
end

---- Headers and answers ----

local function answer(status, text, headers)
    ngx.status = status
    for name, value in pairs(headers or {}) do
        ngx.header[name] = value
    end
    ngx.header.content_type = "text/plain"
    ngx.header.content_length = #text + 1
    ngx.say(text)
    return ngx.exit(ngx.HTTP_OK)
end

local function encode(text)
    return (gsub(text, "[^!#-$&-~]", function(c) return format("%%%02X", byte(c)) end))
end

-- nil if it is malformed.
local function decode(text, max)
    if find(text, "%", 1, true) then
        if find(gsub(text, "%%%x%x", ""), "%", 1, true) then
            return nil
        end
        text = gsub(text, "%%(%x%x)", function(hex) return char(tonumber(hex, 16)) end)
    end
    return #text > 0 and #text <= max and not find(text, "[%z\1-\31\127]") and text or nil
end

local function is_token(text)
    return #text <= TOKEN_DIGITS and find(text, "^[1-9]%d*$") and pad(text) <= TOKEN_MAX
end

local SAFE = {GET = true, HEAD = true, OPTIONS = true}
local BAD_NAME = "%s: 1 to %d bytes without control characters, percent-encoded"

local function read_token(headers)
    local resource, token = headers["fencing-resource"], headers["fencing-token"]
    local issuer = headers["fencing-issuer"]
    if type(resource) ~= "string" or type(token) ~= "string" then -- a table: given twice
        return nil, "Fencing-Resource and Fencing-Token are given together, and once"
    elseif issuer and type(issuer) ~= "string" then
        return nil, "Fencing-Issuer is given at most once"
    elseif not is_token(token) then
        return nil, "Fencing-Token: a number from 1 to " .. TOKEN_MAX
    end
    local request = {token = pad(token), resource = decode(resource, RESOURCE_MAX),
                     issuer = issuer and decode(issuer, ISSUER_MAX) or ""}
    if not request.resource then
        return nil, format(BAD_NAME, "Fencing-Resource", RESOURCE_MAX)
    elseif issuer and request.issuer == "" then
        return nil, format(BAD_NAME, "Fencing-Issuer", ISSUER_MAX)
    end
    return request
end

-- The token of the request; false: it has none and needs none. Answers what is malformed.
local function read_request(required)
    local headers, truncated = ngx.req.get_headers(HEADERS_MAX)
    if truncated then
        return answer(400, "more than " .. HEADERS_MAX .. " headers")
    end
    if not headers["fencing-resource"] and not headers["fencing-token"]
        and not headers["fencing-issuer"] then
        if required == "all" or required == "writes" and not SAFE[ngx.req.get_method()] then
            return answer(428, "this request needs the headers Fencing-Resource and Fencing-Token")
        end
        return false
    end
    local request, problem = read_token(headers)
    return request or answer(400, problem)
end

local function plain(token)
    return (gsub(token, "^0+", "", 1))
end

local refusals = {}

function refusals.stale(request, resource)
    local highest = plain(sub(dict:get("R" .. request.resource), 1, TOKEN_DIGITS))
    return answer(412, format("stale token %s for %s: the highest seen is %s",
                              plain(request.token), resource, highest),
                  {["Fencing-Highest"] = highest})
end

function refusals.foreign(request, resource)
    local issuer = encode(dict:get("I" .. request.resource) or "")
    return answer(409, format("token of %s for %s, whose tokens come from %s",
                              encode(request.issuer), resource, issuer),
                  {["Fencing-Issuer"] = issuer})
end

function refusals.wait(_, resource)
    local text = own and "not passed on: older requests for " .. resource .. " are in flight"
        or "the guard is not ready; see nginx's error log"
    return answer(503, text, {["Retry-After"] = 1})
end

function refusals.full()
    return answer(503, "the guard's memory is full; enlarge lua_shared_dict", {["Retry-After"] = 9})
end

function refusals.unwritten()
    return answer(503, "the guard's journal cannot be written; see nginx's error log",
                  {["Retry-After"] = 1})
end

---- What the configuration calls ----

function M.configure(given)
    settings = given
end

-- access_by_lua. required: "all", "writes" or "none": which requests must carry a token.
function M.enter(required)
    local request = read_request(required)
    if not request then
        return
    end
    -- First: a holder that is stopped in the middle of its body must not be in flight meanwhile.
    ngx.req.read_body()
    local deadline_ms, pause_s = nil, PAUSE_MIN_S
    local verdict = attempt(request)
    while verdict == "wait" do
        deadline_ms = deadline_ms or now_ms() + settings.wait_ms
        if now_ms() >= deadline_ms then
            break
        end
        ngx.sleep(pause_s)
        pause_s = math.min(2 * pause_s, PAUSE_MAX_S)
        verdict = attempt(request)
    end
    if verdict ~= "pass" then
        return refusals[verdict](request, encode(request.resource))
    end
end

-- body_filter_by_lua. The end reaches us only if the upstream's answer was complete.
function M.body()
    if ngx.arg[2] then
        local address = request_address()
        answered[address] = held[address] and true
    end
end

-- Whether the upstream can no longer be at work on this request. Otherwise its token counts as in
-- flight for some time after the connection was cut.
local function is_over(ended)
    local header_time = ngx.var.upstream_header_time
    if not header_time or header_time == "-" and ngx.var.upstream_connect_time == "-" then
        return true -- it was never sent
    elseif header_time == "-" or find(header_time, "[,:]") then
        return false -- no answer, or several tries
    end
    -- Answers without a body have no end for body() to see, nor has one whose client is gone.
    return ended or ngx.req.get_method() == "HEAD" or ngx.status == 204 or ngx.status == 304
        or ngx.var.upstream_http_content_length == ngx.var.upstream_response_length
end

-- log_by_lua: it runs however the request has ended.
function M.leave()
    local address = request_address()
    local flight = held[address]
    if not flight then
        return
    end
    if not is_over(answered[address]) then
        flight.ends_ms = now_ms() + settings.settle_ms
    end
    held[address], answered[address] = nil, nil
    withdraw(flight)
end

---- Start and end of a worker ----

local function reset(token, issuer, resource)
    assert(append(journal_line(token, "w", issuer, resource), C.fdatasync), "journal not written")
    dict:delete("I" .. resource)
    assert(issuer == "" or dict:safe_set("I" .. resource, issuer))
    assert(dict:safe_set("R" .. resource, token .. "w"))
end

local function take_over_resets()
    local file, problem, errno = io.open(path("reset"), "rb")
    if not file then
        if errno ~= ENOENT then
            ngx.log(ngx.ERR, "stile guard: ", problem)
        end
        return
    end
    for line in file:lines() do
        local token, issuer, resource = match(line, "^(%d+)\t([^\t]*)\t([^\t]+)$")
        if token and #token <= TOKEN_DIGITS and pad(token) <= TOKEN_MAX then
            reset(pad(token), issuer, resource)
        else
            ngx.log(ngx.ERR, "stile guard: not TOKEN<tab>ISSUER<tab>RESOURCE in ", path("reset"),
                    ": ", line)
        end
    end
    file:close()
    os.remove(path("reset"))
end

local function random_name()
    local file = assert(io.open("/dev/urandom", "rb"))
    local bytes = file:read(16)
    file:close()
    return (gsub(bytes, ".", function(c) return format("%02x", byte(c)) end))
end

-- Fills an empty dictionary, after a start of nginx or a reload that has changed its size. Under
-- the lock.
local function load()
    local slots = read_slots()
    for _, slot in ipairs(slots) do
        if locked_by_another(slot.at, SLOT_SIZE) then
            error("waiting for the workers of an earlier nginx or configuration to end", 0)
        end
    end
    local last = read_journal()
    compact(last)
    for resource, entry in pairs(last) do
        local stored = dict:safe_set("R" .. resource, entry[1] .. entry[2])
            and (entry[3] == "" or dict:safe_set("I" .. resource, entry[3]))
        if not stored then
            error("lua_shared_dict is too small for " .. path("journal"), 0)
        end
    end
    assert(dict:safe_set("generation", 0))
    -- Those of an nginx that ended with requests in flight are still there.
    assert(dict:safe_set("unknown_until", #slots > 0 and now_ms() + settings.settle_ms or 0))
    assert(dict:safe_set("instance", random_name()))
end

local function join()
    if not dict:get("instance") then
        load()
    end
    take_over_resets()
    for _, slot in ipairs(read_slots()) do -- a new worker often follows a dead one
        if slot.instance == dict:get("instance") and not locked_by_another(slot.at, SLOT_SIZE) then
            death_ends_ms(slot)
        end
    end
    own = take_slot(dict:get("instance"))
    return true
end

local last_problem
local function try_to_join(premature)
    if premature then
        return
    end
    local fine, result = pcall(function()
        workers_fd = workers_fd or open(path("workers"), O_RDWR + O_CREAT)
        return with_lock(join)
    end)
    if not fine and result ~= last_problem then
        last_problem = result
        ngx.log(ngx.ERR, "stile guard: ", result)
    end
    if not own then
        ngx.timer.at(JOIN_PAUSE_S, try_to_join)
    end
end

-- init_worker_by_lua
function M.start()
    dict = ngx.shared[settings.dict]
    ngx.timer.at(0, try_to_join)
end

-- exit_worker_by_lua. A worker with requests in flight leaves its line, as one that is killed does.
function M.stop()
    if not own then
        return
    end
    for _, flight in pairs(flights) do
        if flight.count > 0 or flight.ends_ms > now_ms() then
            return
        end
    end
    for _, flight in pairs(flights) do
        dict:delete(flight.key)
    end
    bury(own)
end

return M
