#include "engines/redis/scripts.h"

#include "mutant.h"

/* Where it is an argument, text is cheaper than a number. */
#define A_YEAR_MS "'31536000000'"

/* Shared by all. `fits` is the rule: a claim is granted if all who hold are of its kind, and for
 * slots fewer than its own number. A server out of memory refuses to add anything to a script that
 * has not changed anything yet: what must work even then begins with a PEXPIRE or DEL. */
#define BEGIN                                                                                      \
    "local call=redis.call\n"                                                                      \
    "local K,Q,B,F,M,I=KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5],KEYS[6]\n"                          \
    "local v=call('GET',K)\n"

#define FUNCTIONS                                                                                  \
    "local function now() local t=call('TIME') return t[1]*1000+math.floor(t[2]/1000) end\n"       \
    "local function text(number) return string.format('%.0f',number) end\n"                       \
    "local function crowd() return v=='~s' or v=='~n' end\n"                                       \
    /* members whose time is over go; the last one takes K along */                                \
    "local function purge()\n"                                                                     \
    "  if not crowd() then return end\n"                                                           \
    "  for _,o in ipairs(call('ZRANGEBYSCORE',M,'-inf',now())) do\n"                               \
    "    call('ZREM',M,o) call('HDEL',I,o)\n"                                                      \
    "  end\n"                                                                                      \
    "  if call('ZCARD',M)==0 then call('DEL',K) v=false end\n"                                     \
    "end\n"                                                                                        \
    "local function fits(mode,slots)\n"                                                            \
    "  if not v then return true end\n"                                                            \
    "  if mode=='s' then return v=='~s' end\n"                                                     \
    "  return mode=='n' and v=='~n' and call('ZCARD',M)<tonumber(slots)\n"                         \
    "end\n"                                                                                        \
    /* K and what goes with it never end before another member does */                             \
    "local function extend(owner,mode,px)\n"                                                       \
    "  if mode=='x' then call('PEXPIRE',K,px) return end\n"                                       \
    "  local most=math.max(px,call('PTTL',K))\n"                                                   \
    "  call('PEXPIRE',K,most)\n"                                                                   \
    "  call('ZADD',M,now()+px,owner)\n"                                                            \
    "  call('PEXPIRE',M,most) call('PEXPIRE',I,most)\n"                                            \
    "end\n"                                                                                        \
    "local function put(owner,mode,px,info)\n"                                                     \
    "  local token=call('INCR',F)\n"                                                               \
    "  if mode=='x' then\n"                                                                        \
    "    v=owner\n"                                                                                \
    "    call('SET',K,owner,'PX',px)\n"                                                            \
    "    call('SET',B,owner..' '..info,'PX'," A_YEAR_MS ")\n"                                      \
    "    return token\n"                                                                           \
    "  end\n"                                                                                      \
    "  if not v then v='~'..mode call('DEL',M,I) call('SET',K,v,'PX',px) end\n"                    \
    "  call('HSET',I,owner,token..' '..text(now())..' '..info)\n"                                 \
    "  extend(owner,mode,px)\n"                                                                    \
    "  return token\n"                                                                             \
    "end\n"                                                                                        \
    /* the token of a grant that is the owner's, else false */                                     \
    "local function mine(owner,mode)\n"                                                            \
    "  if mode=='x' then return v==owner and tonumber(call('GET',F)) end\n"                        \
    "  local i=v=='~'..mode and call('HGET',I,owner)\n"                                            \
    "  return i and tonumber(string.match(i,'^%d+'))\n"                                            \
    "end\n"                                                                                        \
    /* of an exclusive holder that is ours, else false: others change K and leave what is beside it */\
    "local function by()\n"                                                                        \
    "  local b=v and #v==40 and call('GET',B)\n"                                                   \
    "  return b and string.sub(b,1,40)==v and string.sub(b,42)\n"                                  \
    "end\n"                                                                                        \
    "local function since() return now()+call('PTTL',B)-" A_YEAR_MS " end\n"                       \
    /* ms until the next one that holds must have ended by itself, -1: never; and whether it may end */\
    /* before without a word to us */                                                              \
    "local function ends()\n"                                                                      \
    "  if crowd() then\n"                                                                          \
    "    local next=call('ZRANGE',M,0,0,'WITHSCORES')[2]\n"                                        \
    "    return math.max(0,tonumber(next)-now()),0\n"                                              \
    "  end\n"                                                                                      \
    "  return call('PTTL',K),(not v or v=='~h' or by()) and 0 or 1\n"                              \
    "end\n"                                                                                        \
    "local function read(entry)\n"                                                                 \
    "  return string.match(entry,'^(%S+) (%a) (%d+) (.*)$')\n"                                     \
    "end\n"                                                                                        \
    /* when who waits should look by itself: the first when something ends; the second stands in for a */\
    /* first that has died; the others trust those two */                                          \
    "local function pause(entry)\n"                                                                \
    "  if call('LINDEX',Q,'0')==entry then return ends() end\n"                                      \
    "  if call('LINDEX',Q,'1')~=entry then return 30000,0 end\n"                                     \
    "  local _,mode,slots=read(entry)\n"                                                           \
    "  if fits(mode,slots) then return 1000,0 end\n"                                               \
    "  local ms=ends()\n"                                                                          \
    "  return ms<0 and 30000 or ms+1000,0\n"                                                       \
    "end\n"                                                                                        \
    "local function tell(owner,what)\n"                                                            \
    "  return call('PUBLISH','stile:'..string.sub(owner,1,16),what)\n"                             \
    "end\n"                                                                                        \
    "local function tell_pause(owner,entry)\n"                                                     \
    "  local ms,silent=pause(entry)\n"                                                             \
    "  return tell(owner,'h '..owner..' '..text(ms)..' '..silent)\n"                              \
    "end\n"                                                                                        \
    /* grants to the first in line, and on, as long as it fits; skips whom nobody hears: who listens */\
    /* on another node of a Cluster asks again. `me` has asked and needs not be told. */           \
    "local function serve(me)\n"                                                                   \
    "  while true do\n"                                                                            \
    "    local e=call('LINDEX',Q,'0')\n"                                                             \
    "    if not e then return end\n"                                                               \
    "    local owner,mode,slots,info=read(e)\n"                                                    \
    "    if fits(mode,slots) then\n"                                                               \
    "      call('LPOP',Q)\n"                                                                       \
    "      if owner==me or tell(owner,'g '..owner)>0 then put(owner,mode,1000,info) end\n"         \
    "    elseif owner==me or tell_pause(owner,e)>0 then\n"                                         \
    "      local second=call('LINDEX',Q,'1')\n"                                                      \
    "      if second then tell_pause(read(second),second) end\n"                                   \
    "      return\n"                                                                               \
    "    else\n"                                                                                   \
    "      call('LPOP',Q) tell(owner,'g '..owner)\n"                                               \
    "    end\n"                                                                                    \
    "  end\n"                                                                                      \
    "end\n"

/* Each call, and each function or number made into text, costs the server some per cent of all it
 * does for a plain SET: here are as few as will do. INCR comes first, as it may fail. */
static const char take_source[] = "local call,owner=redis.call,ARGV[1]\n"
#ifdef MUTANT_REDIS_TAKE_OVERTAKES
                                  "if call('EXISTS',KEYS[1])>0 then return 0 end\n"
#else
                                  "if call('EXISTS',KEYS[1],KEYS[2])>0 then return 0 end\n"
#endif
                                  "local token=call('INCR',KEYS[4])\n"
                                  "call('PSETEX',KEYS[1],ARGV[2],owner)\n"
                                  "call('PSETEX',KEYS[3]," A_YEAR_MS ",owner..' '..ARGV[3])\n"
                                  "return token\n";

static const char give_source[] = "local call=redis.call\n"
#ifndef MUTANT_REDIS_DEL_WITHOUT_COMPARE
                                  "if call('GET',KEYS[1])~=ARGV[1] then return 0 end\n"
#endif
#ifndef MUTANT_REDIS_GIVE_TO_NOBODY
                                  "if call('EXISTS',KEYS[2])==1 then return 0 end\n"
#endif
                                  "return call('DEL',KEYS[1],KEYS[3])\n";

/* A repeated request finds what the first one did: owner values make it safe. Nobody overtakes: who
 * is in line already is served first. A newcomer disturbs nobody but where it could go in; behind
 * an exclusive holder that is nowhere, and needs none of the functions. */
static const char claim_source[] =
    BEGIN "local owner,mode,slots,px,info=ARGV[1],ARGV[2],ARGV[3],tonumber(ARGV[4]),ARGV[5]\n"
          "local entry=owner..' '..mode..' '..slots..' '..info\n"
          "local again=ARGV[7]=='1'\n"
          "if v and v~='~s' and v~='~n' and ARGV[6]=='1' and not again then\n"
          "  local n=call('RPUSH',Q,entry)\n"
          "  call('PEXPIRE',Q,'3600000')\n"
          "  if n>2 then return {0,30000,0} end\n"
          "  local ms=call('PTTL',K)\n"
          "  if n==2 then return {0,ms<0 and 30000 or ms+1000,0} end\n"
          "  if v=='~h' then return {0,ms,0} end\n"
          "  local b=#v==40 and call('GET',B)\n"
          "  return {0,ms,b and string.sub(b,1,40)==v and 0 or 1}\n"
          "end\n" FUNCTIONS "purge()\n"
          "if again or fits(mode,slots) then serve(owner) end\n"
          "local token=again and mine(owner,mode)\n"
          "if token then extend(owner,mode,px) return {1,token} end\n"
          "local waiting=call('EXISTS',Q)==1\n"
          "if not waiting and fits(mode,slots) then return {1,put(owner,mode,px,info)} end\n"
          "local ms,silent\n"
          "if ARGV[6]=='0' then\n"
          "  ms,silent=ends()\n"
          "  return {0,ms,silent}\n"
          "end\n"
          "if not again or not call('LPOS',Q,entry) then call('RPUSH',Q,entry) end\n"
          "call('PEXPIRE',Q,'3600000')\n"
          "ms,silent=pause(entry)\n"
          "return {0,ms,silent}\n";

static const char confirm_source[] =
    BEGIN "local owner,mode=ARGV[1],ARGV[2]\n"
          "if mode=='x' then\n"
          "  if v~=owner then return 0 end\n"
          "  call('PEXPIRE',K,ARGV[3])\n"
          "  return tonumber(call('GET',F))\n"
          "end\n" FUNCTIONS "purge()\n"
          "local token=mine(owner,mode)\n"
          "if token then extend(owner,mode,tonumber(ARGV[3])) end\n"
          "return token or 0\n";

/* From one exclusive holder to the next, which is what happens most, without functions: it grants
 * for a second, and who is first and second then hears as from serve(). LPOP is allowed to a server
 * out of memory, and all after it.
 *
 * What is left of hold_at_least or of a lock-delay stays, nobody's, on the server's clock. */
static const char release_source[] =
    BEGIN "local owner,mode,hold,handed=ARGV[1],ARGV[2],tonumber(ARGV[4]),false\n"
          "local delay=tonumber(ARGV[6])\n"
#ifdef MUTANT_REDIS_DEL_WITHOUT_COMPARE
          "v=owner\n"
#endif
          "if v==owner and mode=='x' and hold+delay==0 then\n"
          "  local first,sub=call('LPOP',Q),string.sub\n"
          "  if not first then call('DEL',K,B) return 1 end\n"
          "  local to,info=string.match(first,'^(%S+) x %d+ (.*)$')\n"
          "  if not to then call('LPUSH',Q,first) end\n"
          "  if to and call('PUBLISH','stile:'..sub(to,1,16),'g '..to)>0 then\n"
          "    call('INCR',F)\n"
          "    call('PSETEX',K,'1000',to)\n"
          "    call('PSETEX',B," A_YEAR_MS ",to..' '..info)\n"
          "    local q=call('LRANGE',Q,'0','1')\n"
          "    if not q[1] then return 1 end\n"
          "    v,handed=to,true\n"
          "    to=sub(q[1],1,40)\n"
          "    if call('PUBLISH','stile:'..sub(to,1,16),'h '..to..' 1000 0')>0 then\n"
          "      if not q[2] then return 1 end\n"
          "      to=sub(q[2],1,40)\n"
          "      call('PUBLISH','stile:'..sub(to,1,16),'h '..to..' 2000 0')\n"
          "      return 1\n"
          "    end\n"
          "  end\n"
          "end\n" FUNCTIONS "if handed then serve() return 1 end\n"
          "purge()\n"
          "if not mine(owner,mode) then\n"
          "  local gone=call('LREM',Q,1,owner..' '..mode..' '..ARGV[3]..' '..ARGV[5])\n"
          "  serve()\n"
          "  return gone*2\n"
          "end\n"
          "local left=0\n"
          "if mode=='x' then\n"
          "  if hold>0 and by() then left=since()+hold-now() end\n"
          "  if delay>0 then left=math.max(left,math.min(delay,call('PTTL',K))) end\n"
          "  call('DEL',B)\n"
          "  if left>0 then v='~h' call('SET',K,v,'PX',left) else call('DEL',K) v=false end\n"
          "else\n"
          "  local t=now()\n"
          "  left=tonumber(string.match(call('HGET',I,owner),'^%d+ (%d+)'))+hold-t\n"
          "  left=math.max(left,math.min(delay,call('ZSCORE',M,owner)-t))\n"
          "  call('ZREM',M,owner) call('HDEL',I,owner)\n"
          "  if left>0 then\n"
          "    call('ZADD',M,t+left,'~h'..owner)\n"
          "  elseif call('ZCARD',M)==0 then\n"
          "    call('DEL',K) v=false\n"
          "  end\n"
          "end\n"
          "serve()\n"
          "return 1\n";

/* One key that makes trouble must not cost the others of its batch: 0 is told only where it is
 * certain, and 2 for what is not known. READONLY is about the whole server and is the answer to the
 * whole batch: the connection must leave it. Who waits hears from each renewal that it need not
 * look yet, and who died waiting is noticed. */
static const char renew_source[] =
    "local call=redis.call\n"
    "local v,K,Q,B,F,M,I\n" FUNCTIONS "local out={}\n"
    "local function one(i)\n"
    "  local k=i*6-5\n"
    "  K,Q,B,F,M,I=KEYS[k],KEYS[k+1],KEYS[k+2],KEYS[k+3],KEYS[k+4],KEYS[k+5]\n"
    "  v=call('GET',K)\n"
    "  purge()\n"
    "  local owner,mode=ARGV[i*3-2],ARGV[i*3-1]\n"
    "  local held=v==owner and mode=='x' or mode~='x' and mine(owner,mode)\n"
    /* a replica that runs behind may not know it: it may not say so, as it can't write either */
    "  if held then extend(owner,mode,tonumber(ARGV[i*3])) else call('LTRIM',Q,0,-1) end\n"
    "  out[i]=held and 1 or 0\n"
#ifndef MUTANT_REDIS_RENEWAL_IS_SILENT
    "  serve()\n"
#endif
    "end\n"
    "for i=1,#ARGV/3 do\n"
    "  out[i]=2\n"
    "  local done,e=pcall(one,i)\n"
    "  e=type(e)=='table' and e.err or e\n"
    "  e=not done and out[i]==2 and tostring(e) or ''\n"
    "  if string.find(e,'WRONGTYPE') then out[i]=0 end\n"
    "  if string.find(e,'READONLY') then return redis.error_reply('READONLY a replica') end\n"
    "end\n"
    "return out\n";

static const char show_source[] = BEGIN FUNCTIONS
    "purge()\n"
    "local m={}\n"
    "if crowd() then\n"
    "  local z=call('ZRANGE',M,0,-1,'WITHSCORES')\n"
    "  for i=1,#z,2 do m[#m+1]={z[i],z[i+1],call('HGET',I,z[i]) or ''} end\n"
    "end\n"
    "local b=by()\n"
    "if b then b=text(since())..' '..b end\n"
    "return {v,call('PTTL',K),call('GET',F),b,text(now()),m,call('LRANGE',Q,0,-1)}\n";

static const char break_source[] =
    BEGIN FUNCTIONS "local token=ARGV[1]\n"
                    "purge()\n"
                    "if not v then return 0 end\n"
                    "if crowd() then\n"
                    "  local hit=0\n"
                    "  for _,o in ipairs(call('ZRANGE',M,0,-1)) do\n"
                    "    local t=string.match(call('HGET',I,o) or '','^%d+')\n"
                    "    if token=='0' or t==token then\n"
                    "      call('ZREM',M,o) call('HDEL',I,o) tell(o,'b '..o) hit=1\n"
                    "    end\n"
                    "  end\n"
                    "  if hit==0 then return -1 end\n"
                    "  if call('ZCARD',M)==0 then call('DEL',K) v=false end\n"
                    "else\n"
                    "  local granted=(v=='~h' or by()) and call('GET',F)\n"
                    "  if token~='0' and granted~=token then return -1 end\n"
                    "  call('DEL',K,B)\n"
                    "  if #v==40 then tell(v,'b '..v) end\n"
                    "  v=false\n"
                    "end\n"
                    "serve()\n"
                    "return 1\n";

void scripts_init(struct scripts *s)
{
    lua_init(&s->take, take_source);
    lua_init(&s->give, give_source);
    lua_init(&s->claim, claim_source);
    lua_init(&s->confirm, confirm_source);
    lua_init(&s->release, release_source);
    lua_init(&s->renew, renew_source);
    lua_init(&s->show, show_source);
    lua_init(&s->break_, break_source);
}
