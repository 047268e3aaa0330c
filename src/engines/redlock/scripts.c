#include "engines/redlock/scripts.h"

#include "mutant.h"

/* Functions are made anew in each call, so the common case comes before them. */

/* Numbers stay texts where they are only passed on: Lua would write large ones as 1e+15, and small
 * ones slowly. */
#define READ_FENCE                                                                                 \
    "local function fence_of(e)\n"                                                                 \
    "  return string.match(e or '','^%d+') or N and call('HGET',N,'highest') or '0'\n"             \
    "end\n"

/* Where a name has no fence, the highest of all names stands in, and that grows with every grant of
 * any name: what phase 1 has read there would be too small again in phase 2, and many new names at
 * once would ask again and again. So whoever is given the key gets what it has read as the name's
 * own fence. That never makes it smaller: it is what would have been read at this moment. */
#define FIX_FENCE "if F and N and not e then call('PSETEX',F,'60000',f) end\n"

/* Its epoch is another than the caller's. */
#define APART                                                                                      \
    "local x=call('HMGET',N,'was','seats','past') "                                                \
    "return {-1,n[1] or '',x[1] or '',x[2] or '',x[3] or ''}"

/* How long a node that was adopted takes no claims and hands over nothing, in ms; nil: it does not
 * have to (any longer). What it has forgotten may still be held. */
#define QUIET                                                                                      \
    "local function quiet_ms(until_ms)\n"                                                          \
    "  if not until_ms then return nil end\n"                                                      \
    "  local t=call('TIME')\n"                                                                     \
    "  local left=until_ms-t[1]*1000-math.floor(t[2]/1000)\n"                                      \
    "  if left>0 then return left end\n"                                                           \
    "  call('HDEL',N,'quiet')\n"                                                                   \
    "end\n"

/* A node without an epoch, or a quiet one, gives its key to nobody: its vote could make a second
 * holder. */
#define MAY_GIVE                                                                                   \
    "local function may_give()\n"                                                                  \
    "  if not N then return true end\n"                                                            \
    "  local n=call('HMGET',N,'group','quiet')\n"                                                  \
    "  return n[1] and string.find(n[1],'^%x') and not quiet_ms(n[2])\n"                           \
    "end\n"

/* Hands K to the first waiter whose client is listening, and returns its owner value. `me` is the
 * caller itself: it takes K without a message. The next waiter stands in for a first that dies. */
#define HAND_OVER                                                                                  \
    "local function tell(o,what)\n"                                                                \
    "  return call('PUBLISH','stile:'..string.sub(o,1,16),what)\n"                                 \
    "end\n"                                                                                        \
    "local function hint(ms)\n"                                                                    \
    "  local o=string.sub(call('LINDEX',Q,'0') or '',1,40)\n"                                      \
    "  if o~='' then tell(o,'h '..o..' '..ms) end\n"                                               \
    "end\n"                                                                                        \
    "local function give(o,word)\n"                                                                \
    "  if not may_give() then return false end\n"                                                  \
    "  local e=F and call('GET',F)\n"                                                              \
    "  local f=fence_of(e)\n"                                                                      \
    "  if tell(o,word..' '..o..' '..f..' '..K)==0 then return false end\n"                         \
    "  " FIX_FENCE "  call('SET',K,o,'PX','1000')\n"                                               \
    "  hint(1000)\n"                                                                               \
    "  return o\n"                                                                                 \
    "end\n"                                                                                        \
    "local function serve(me)\n"                                                                   \
    "  if not may_give() then return false end\n"                                                  \
    "  while true do\n"                                                                            \
    "    local e=call('LPOP',Q)\n"                                                                 \
    "    if not e then return false end\n"                                                         \
    "    local o=string.sub(e,1,40)\n"                                                             \
    "    if o==me or give(o,'g') then return o end\n"                                              \
    "  end\n"                                                                                      \
    "end\n"

#define SERVE READ_FENCE QUIET MAY_GIVE HAND_OVER

/* Not free at once. A repeated request finds what the first one did; who is in line already is
 * served first; else, who waits is put in line. Leaves `got`, or answers. */
#define SLOWLY(quiet)                                                                              \
    SERVE                                                                                          \
    "local function line_up()\n"                                                                   \
    "  if not wait then return -1 end\n"                                                           \
    "  local place=again and call('LPOS',Q,entry) or call('RPUSH',Q,entry)-1\n"                    \
    "  call('PEXPIRE',Q,'3600000')\n"                                                              \
    "  return place\n"                                                                             \
    "end\n" quiet "local v=call('GET',K)\n"                                                        \
    "if v==me then\n"                                                                              \
    "  call('PEXPIRE',K,px)\n"                                                                     \
    "else\n"                                                                                       \
    "  if not v then\n"                                                                            \
    "    v=serve(me)\n"                                                                            \
    "    if not v or v==me then call('SET',K,me,'PX',px) v=me end\n"                               \
    "  end\n"                                                                                      \
    "  if v~=me then\n"                                                                            \
    "    local place=line_up()\n"                                                                  \
    "    return {0,call('PTTL',K),v,place}\n"                                                      \
    "  end\n"                                                                                      \
    "end\n"

static const char claim_source[] =
    "local call,K,F,Q,N=redis.call,KEYS[1],KEYS[2],KEYS[3],KEYS[4]\n"
    "local me,px,entry=ARGV[1],ARGV[2],ARGV[7]\n"
    "local n=call('HMGET',N,'group','highest','longest','quiet')\n"
#ifndef MUTANT_REDLOCK_FORGOTTEN_COUNTS
    "if n[1]~=ARGV[3] then " APART " end\n"
#endif
    "if n[3]~=px and tonumber(px)>tonumber(n[3] or 0) then call('HSET',N,'longest',px) end\n"
    "if n[4] or ARGV[6]=='1' or call('EXISTS',Q)==1 or not call('SET',K,me,'NX','PX',px) then\n"
    "  local wait,again=ARGV[5]=='1',ARGV[6]=='1'\n"
    /* clang-format off */
    SLOWLY(
    "  local left=quiet_ms(n[4])\n"
    "  if left then return {0,left,'~q',line_up()} end\n")
    /* clang-format on */
    "end\n"
    "local own=call('GET',F)\n"
    "local f=string.match(own or '','^%d+') or n[2] or '0'\n"
    "local guess=tonumber(ARGV[4])\n"
    "if guess<=tonumber(f) then\n"
    "  if not own then call('PSETEX',F,px,f) end\n" /* see FIX_FENCE */
    "  return {1,tonumber(f)}\n"
    "end\n"
    "call('PSETEX',F,'" FENCE_TXT "',ARGV[4]..' '..entry)\n"
    "if not n[2] or guess>tonumber(n[2]) then call('HSET',N,'highest',ARGV[4]) end\n"
    "return {2,guess}\n";

/* Asked only where the bare SET has failed. */
static const char line_source[] =
    "local call,K,Q,F,N=redis.call,KEYS[1],KEYS[2]\n"
    "local me,px,wait,again,entry=ARGV[1],ARGV[2],ARGV[3]=='1',ARGV[4]=='1',ARGV[5]\n" SLOWLY(
        "") "return {2,0}\n";

static const char fence_source[] =
    "local call,K,F,N=redis.call,KEYS[1],KEYS[2],KEYS[3]\n"
    "local n=call('HMGET',N,'group','highest','quiet')\n"
#ifndef MUTANT_REDLOCK_FORGOTTEN_COUNTS
    "if n[1]~=ARGV[3] then " APART " end\n"
#endif
    "if n[3] then\n" QUIET "  local left=quiet_ms(n[3])\n"
    "  if left then return {0,left,'~q',-1} end\n"
    "end\n"
    "local v=call('GET',K)\n"
    "if v~=ARGV[1] then return {0,call('PTTL',K),v or '',-1} end\n"
    "local f=string.match(call('GET',F) or '','^%d+') or n[2] or '0'\n"
    "local t=tonumber(ARGV[4])\n"
#ifndef MUTANT_REDLOCK_FENCE_UNCONDITIONAL
    "if t<=tonumber(f) then return {1,tonumber(f)} end\n"
#endif
    "call('PEXPIRE',K,ARGV[2])\n"
    "call('PSETEX',F,'" FENCE_TXT "',ARGV[4]..' '..ARGV[5])\n"
    "if not n[2] or t>tonumber(n[2]) then call('HSET',N,'highest',ARGV[4]) end\n"
    "return {2,t}\n";

/* Its lease may not grow in a group that was closed: see renew. */
static const char confirm_source[] =
    "local call,K,F,N=redis.call,KEYS[1],KEYS[2],KEYS[3]\n"
    "if N and ARGV[3] then\n"
    "  local n=call('HMGET',N,'group')\n"
    "  if n[1] and string.sub(n[1],1,16)~=ARGV[3] then " APART " end\n"
    "end\n"
    "local v,px=call('GET',K),ARGV[2]\n"
    "if v~=ARGV[1] then return {0,call('PTTL',K),v or '',-1} end\n"
    "call('PEXPIRE',K,px)\n"
    "if N and tonumber(px)>tonumber(call('HGET',N,'longest') or 0) then\n"
    "  call('HSET',N,'longest',px)\n"
    "end\n"
    "local t,o=string.match(F and call('GET',F) or '','^(%d+) (%x+)')\n"
    "if o~=v then return {2,0,0} end\n"
    "return {2,tonumber(t)," FENCE_TXT "-call('PTTL',F)}\n";

/* What is left of hold_at_least stays, nobody's. A server out of memory lets a script add nothing
 * unless it has changed something before. */
static const char release_source[] =
    "local call,K,Q,F,N=redis.call,KEYS[1],KEYS[2],KEYS[3],KEYS[4]\n"
    "local v=call('GET',K)\n"
    "local mine=v==ARGV[1]\n"
    "if mine and ARGV[2]=='0' and call('EXISTS',Q)==0 then call('DEL',K) return 1 end\n" SERVE
    "if ARGV[3]~='' then call('LREM',Q,1,ARGV[3]) end\n"
    "if not mine then\n"
    "  if not v then serve() end\n"
    "  return 0\n"
    "end\n"
    "if ARGV[2]~='0' then\n"
    "  call('PEXPIRE',K,ARGV[2])\n"
    "  call('SET',K,'~h','PX',ARGV[2])\n"
    "  hint(ARGV[2])\n"
    "elseif not serve() then\n"
    "  call('DEL',K)\n"
    "end\n"
    "return 1\n";

static const char yield_source[] =
    "local call,K,Q,F,N=redis.call,KEYS[1],KEYS[2],KEYS[3],KEYS[4]\n"
    "local to=ARGV[2]\n"
    "if call('GET',K)~=ARGV[1] then return 0 end\n"
    "call('PEXPIRE',K,'1000')\n" SERVE "if to~='' then\n"
    "  for _,e in ipairs(call('LRANGE',Q,0,63)) do\n"
    "    if string.sub(e,1,40)==to then call('LREM',Q,1,e) break end\n"
    "  end\n"
    "end\n"
    "if not (to~='' and give(to,'y')) and not serve() then call('DEL',K) end\n"
    "call('LPUSH',Q,ARGV[3])\n"
    "call('PEXPIRE',Q,'3600000')\n"
    "return 1\n";

/* One key that makes trouble must not cost the others of its batch: 0 is told only where it is
 * certain, and 2 for what is not known. A node that was closed, or is in another group, renews
 * nothing: the group that comes after waits for the leases that there are, and for no longer. */
static const char renew_source[] =
    "local out,n,id={},#KEYS,ARGV[2*#KEYS-1]\n"
    "if #ARGV%2==1 then\n"
    "  n=n-1\n"
    "  local g=redis.call('HGET',KEYS[n+1],'group')\n"
    "  if g and string.sub(g,1,16)~=id then\n"
    "    for i=1,n do out[i]=2 end\n"
    "    return out\n"
    "  end\n"
    "end\n"
    "for i=1,n do\n"
    "  local v=redis.pcall('GET',KEYS[i])\n"
    "  if v==ARGV[2*i-1] then\n"
    "    out[i]=redis.pcall('PEXPIRE',KEYS[i],ARGV[2*i])==1 and 1 or 2\n"
    "  else\n"
    "    out[i]=type(v)=='table' and not string.find(v.err,'WRONGTYPE') and 2 or 0\n"
    "  end\n"
    "end\n"
    "return out\n";

static const char show_source[] =
    "local call,K,Q,F=redis.call,KEYS[1],KEYS[2],KEYS[3]\n"
    "return {call('GET',K),call('PTTL',K),F and call('GET',F) or false,\n"
    "F and " FENCE_TXT "-call('PTTL',F) or 0,call('LRANGE',Q,0,-1)}\n";

static const char break_source[] =
    "local call,K,Q,F,N=redis.call,KEYS[1],KEYS[2],KEYS[3],KEYS[4]\n" SERVE
    "local v=call('GET',K)\n"
    "if not v then return 0 end\n"
    "local t,o=string.match(F and call('GET',F) or '','^(%d+) (%x+)')\n"
    "if ARGV[1]~='0' and (t~=ARGV[1] or v~='~h' and o~=v) then return -1 end\n"
    "call('DEL',K)\n"
    "if #v==40 then tell(v,'b '..v) end\n"
    "serve()\n"
    "return 1\n";

/* What a node is, for struct account. */
#define ACCOUNT                                                                                    \
    "local function account(done)\n"                                                               \
    "  local n=redis.call('HMGET',KEYS[1]," NODE_FIELDS ")\n"                                      \
    "  for i=1,9 do n[i]=n[i] or '' end\n"                                                         \
    "  table.insert(n,1,done)\n"                                                                   \
    "  return n\n"                                                                                 \
    "end\n"

/* What it was before is on record: it is older. Of proposals nobody needs to know. A node that has
 * agreed to a group of another size (`next`) stays closed in every later epoch. */
static const char change_source[] =
    ACCOUNT "local n=redis.call('HMGET',KEYS[1],'group','was','next')\n"
            "if n[1]~=ARGV[1] then return account(0) end\n"
            "local was=n[2] or ''\n"
            "if ARGV[3]~='' then was=ARGV[3]\n"
            "elseif string.find(n[1],'.',1,true) then\n"
            "  was=string.sub(string.gsub(n[1],'^#','')..' '..was,1," WAS_TXT ")\n"
            "end\n"
            "redis.call('HSET',KEYS[1],'group',(n[3] and '#' or '')..ARGV[2],'was',was)\n"
            "if ARGV[4]~='' then redis.call('HSET',KEYS[1],'seats',ARGV[4],'n',ARGV[5]) end\n"
            "return account(1)\n";

/* A node whose seat was given to another must not come back beside it. */
static const char follow_source[] =
    "local n=redis.call('HMGET',KEYS[1],'group','seat')\n"
    "if not n[1] or not string.find(' '..ARGV[2]..' ',' '..n[1]..' ',1,true) then return 0 end\n"
    "if ARGV[3]~='' then\n"
    "  local seat=' '..(n[2] or '?')..' '\n"
    "  if not string.find(' '..ARGV[3]..' ',seat,1,true) then return 0 end\n"
    "  redis.call('HSET',KEYS[1],'seats',ARGV[3])\n"
    "end\n"
    "redis.call('HSET',KEYS[1],'group',ARGV[1],'was',ARGV[2])\n"
    "return 1\n";

/* Quiet for as long as the longest lease that may have been forgotten, or was given by others. What
 * the node remembers itself is kept where it is larger. */
static const char adopt_source[] =
    ACCOUNT "local call,N=redis.call,KEYS[1]\n"
            "local n=call('HMGET',N,'group','highest','longest')\n"
            "if n[1]~=ARGV[4] then return account(0) end\n"
            "local t=call('TIME')\n"
            "local high,longest=ARGV[2],ARGV[3]\n"
            "if tonumber(n[2] or 0)>tonumber(high) then high=n[2] end\n"
            "if tonumber(n[3] or 0)>tonumber(longest) then longest=n[3] end\n"
            "local quiet=t[1]*1000+math.floor(t[2]/1000)+longest\n"
            "call('HDEL',N,'next')\n"
            "call('HSET',N,'group',ARGV[1],'highest',high,'longest',longest,'was',ARGV[5],\n"
            "'seats',ARGV[6],'n',ARGV[7],'past',ARGV[8],'quiet',string.format('%.0f',quiet))\n"
            "return account(1)\n";

/* Its size and seats, where an older release has left none. */
static const char record_source[] =
    ACCOUNT "local n=redis.call('HMGET',KEYS[1],'group','n')\n"
            "if n[1]~=ARGV[1] or n[2] then return account(0) end\n"
            "redis.call('HSET',KEYS[1],'seats',ARGV[2],'n',ARGV[3])\n"
            "return account(1)\n";

/* From here on the node gives no votes, keys or renewals in its group. */
static const char close_source[] =
    ACCOUNT "local g=redis.call('HGET',KEYS[1],'group')\n"
            "if g~=ARGV[1] and g~='#'..ARGV[1] then return account(0) end\n"
            "redis.call('HSET',KEYS[1],'group','#'..ARGV[1],'next',ARGV[1]..' '..ARGV[2])\n"
            "return account(1)\n";

void lock_scripts_init(struct lock_scripts *s)
{
    lua_init(&s->claim, claim_source);
    lua_init(&s->line, line_source);
    lua_init(&s->fence, fence_source);
    lua_init(&s->confirm, confirm_source);
    lua_init(&s->release, release_source);
    lua_init(&s->yield, yield_source);
    lua_init(&s->renew, renew_source);
    lua_init(&s->show, show_source);
    lua_init(&s->break_, break_source);
    lua_init(&s->change, change_source);
    lua_init(&s->follow, follow_source);
    lua_init(&s->adopt, adopt_source);
    lua_init(&s->record, record_source);
    lua_init(&s->close, close_source);
}
