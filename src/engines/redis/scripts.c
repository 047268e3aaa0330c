#include "engines/redis/scripts.h"

#include "mutant.h"

/* Shared by all but renew. `fits` is the rule: a claim is granted if all who hold are of its kind,
 * and for slots fewer than its own number. */
#define COMMON                                                                                     \
    "local K,F,Q,B,M,I=KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5],KEYS[6]\n"                          \
    "local call=redis.call\n"                                                                      \
    "local function now() local t=call('TIME') return t[1]*1000+math.floor(t[2]/1000) end\n"       \
    "local v=call('GET',K)\n" /* members whose time is over go; the last one takes K along */      \
    "local function purge()\n"                                                                     \
    "  if v~='~s' and v~='~n' then return end\n"                                                   \
    "  local dead=call('ZRANGEBYSCORE',M,'-inf',now())\n"                                          \
    "  for _,o in ipairs(dead) do call('ZREM',M,o) call('HDEL',I,o) end\n"                         \
    "  if call('ZCARD',M)==0 then call('DEL',K) v=false end\n"                                     \
    "end\n"                                                                                        \
    "local function fits(mode,slots)\n"                                                            \
    "  if not v then return true end\n"                                                            \
    "  if mode=='s' then return v=='~s' end\n"                                                     \
    "  return mode=='n' and v=='~n' and call('ZCARD',M)<tonumber(slots)\n"                         \
    "end\n" /* never shorter than what other members have left */                                  \
    "local function keep(mode,px)\n"                                                               \
    "  local left=call('PTTL',K)\n"                                                                \
    "  if left<px then left=px end\n"                                                              \
    "  v='~'..mode\n"                                                                              \
    "  call('SET',K,v,'PX',left) call('PEXPIRE',M,left) call('PEXPIRE',I,left)\n"                  \
    "end\n"                                                                                        \
    "local function put(owner,mode,px,info)\n"                                                     \
    "  local token=call('INCR',F)\n"                                                               \
    "  if mode=='x' then\n"                                                                        \
    "    v=owner\n"                                                                                \
    "    call('SET',K,owner,'PX',px)\n"                                                            \
    "    call('SET',B,string.format('%.0f',now())..' '..info,'PX',px)\n"                           \
    "  else\n"                                                                                     \
    "    local t=now()\n"                                                                          \
    "    call('ZADD',M,t+px,owner)\n"                                                              \
    "    call('HSET',I,owner,token..' '..string.format('%.0f',t)..' '..info)\n"                    \
    "    keep(mode,px)\n"                                                                          \
    "  end\n"                                                                                      \
    "  return token\n"                                                                             \
    "end\n" /* the token of a grant that is the owner's, else false */                             \
    "local function mine(owner,mode)\n"                                                            \
    "  if mode=='x' then return v==owner and tonumber(call('GET',F)) end\n"                        \
    "  local i=call('HGET',I,owner)\n"                                                             \
    "  return i and tonumber(string.match(i,'^%d+'))\n"                                            \
    "end\n"                                                                                        \
    "local function extend(owner,mode,px)\n"                                                       \
    "  if mode=='x' then call('PEXPIRE',K,px) call('PEXPIRE',B,px) return end\n"                   \
    "  call('ZADD',M,now()+px,owner) keep(mode,px)\n"                                              \
    "end\n"                                                                                        \
    "local function tell(owner,what)\n"                                                            \
    "  return call('PUBLISH','stile:'..string.sub(owner,1,16),what)\n"                             \
    "end\n" /* grants to the first in line, and on, as long as it fits; skips whom nobody hears */ \
    "local function serve(quiet)\n"                                                                \
    "  while true do\n"                                                                            \
    "    local e=call('LINDEX',Q,0)\n"                                                             \
    "    if not e then return end\n"                                                               \
    "    local owner,mode,slots,info=string.match(e,'^(%S+) (%a) (%d+) (.*)$')\n"                  \
    "    if not fits(mode,slots) then\n"                                                           \
    "      if quiet or tell(owner,'h '..owner..' '..call('PTTL',K))>0 then return end\n"           \
    "      call('LPOP',Q)\n"                                                                       \
    "    else\n"                                                                                   \
    "      call('LPOP',Q)\n"                                                                       \
    "      if tell(owner,'g '..owner)>0 then put(owner,mode,1000,info) end\n"                      \
    "    end\n"                                                                                    \
    "  end\n"                                                                                      \
    "end\n"

/* A repeated request finds what the first one did: owner values make it safe. Nobody overtakes: who
 * is in line already is served first. */
static const char claim_source[] = COMMON
    "local owner,mode,slots,px,info=ARGV[1],ARGV[2],ARGV[3],tonumber(ARGV[4]),ARGV[5]\n"
    "purge()\n"
    "serve(true)\n"
    "local token=ARGV[7]=='1' and mine(owner,mode)\n"
    "if token then extend(owner,mode,px) return {1,token} end\n"
    "local entry=owner..' '..mode..' '..slots..' '..info\n"
    "if fits(mode,slots) and call('EXISTS',Q)==0 then return {1,put(owner,mode,px,info)} end\n"
    "if ARGV[6]=='0' then return {0,call('PTTL',K),0} end\n"
    "if ARGV[7]=='0' or not call('LPOS',Q,entry) then call('RPUSH',Q,entry) end\n"
    "call('PEXPIRE',Q,3600000)\n"
    "return {0,call('PTTL',K),call('LINDEX',Q,0)==entry and 1 or 0}\n";

static const char confirm_source[] = COMMON "local owner,mode=ARGV[1],ARGV[2]\n"
                                            "local token=mine(owner,mode)\n"
                                            "if not token then return {0} end\n"
                                            "extend(owner,mode,tonumber(ARGV[3]))\n"
                                            "return {1,token}\n";

/* What is left of hold_at_least stays, nobody's, on the server's clock. */
static const char release_source[] =
    COMMON "local owner,mode,hold=ARGV[1],ARGV[2],tonumber(ARGV[4])\n"
           "purge()\n"
#ifdef MUTANT_REDIS_DEL_WITHOUT_COMPARE
           "v=owner\n"
#endif
           "if not mine(owner,mode) then\n"
           "  local gone=call('LREM',Q,1,owner..' '..mode..' '..ARGV[3]..' '..ARGV[5])\n"
           "  serve()\n"
           "  return gone*2\n"
           "end\n"
           "local left=0\n"
           "if mode=='x' then\n"
           "  if hold>0 then\n"
           "    local since=call('GET',B)\n"
           "    left=since and tonumber(string.match(since,'^%d+'))+hold-now() or 0\n"
           "  end\n"
           "  call('DEL',B)\n"
           "  if left>0 then v='~h' call('SET',K,v,'PX',left) else call('DEL',K) v=false end\n"
           "else\n"
           "  local t=now()\n"
           "  left=tonumber(string.match(call('HGET',I,owner),'^%d+ (%d+)'))+hold-t\n"
           "  call('ZREM',M,owner) call('HDEL',I,owner)\n"
           "  if left>0 then\n"
           "    call('ZADD',M,t+left,'~h'..owner)\n"
           "  elseif call('ZCARD',M)==0 then\n"
           "    call('DEL',K) v=false\n"
           "  end\n"
           "end\n"
           "serve()\n"
           "return 1\n";

static const char renew_source[] =
    "local call,out=redis.call,{}\n"
    "local t=call('TIME') t=t[1]*1000+math.floor(t[2]/1000)\n"
    "for i=1,#ARGV/3 do\n"
    "  local K,B,M,I=KEYS[i*4-3],KEYS[i*4-2],KEYS[i*4-1],KEYS[i*4]\n"
    "  local owner,mode,px=ARGV[i*3-2],ARGV[i*3-1],tonumber(ARGV[i*3])\n"
    "  out[i]=0\n"
    "  if mode=='x' then\n"
    "    if call('GET',K)==owner then call('PEXPIRE',K,px) call('PEXPIRE',B,px) out[i]=1 end\n"
    "  else\n"
    "    local ends=call('ZSCORE',M,owner)\n"
    "    if ends and tonumber(ends)>t and call('GET',K)=='~'..mode then\n"
    "      call('ZADD',M,t+px,owner)\n"
    "      local left=call('PTTL',K)\n"
    "      if left<px then left=px end\n"
    "      call('PEXPIRE',K,left) call('PEXPIRE',M,left) call('PEXPIRE',I,left)\n"
    "      out[i]=1\n"
    "    end\n"
    "  end\n"
    "end\n"
    "return out\n";

static const char show_source[] =
    COMMON "purge()\n"
           "local m={}\n"
           "if v=='~s' or v=='~n' then\n"
           "  local z=call('ZRANGE',M,0,-1,'WITHSCORES')\n"
           "  for i=1,#z,2 do m[#m+1]={z[i],z[i+1],call('HGET',I,z[i]) or ''} end\n"
           "end\n"
           "return {v,call('PTTL',K),call('GET',F),call('GET',B),string.format('%.0f',now()),m,"
           "call('LRANGE',Q,0,-1)}\n";

static const char break_source[] =
    COMMON "local token=ARGV[1]\n"
           "purge()\n"
           "if not v then return 0 end\n"
           "if v=='~s' or v=='~n' then\n"
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
           "  if token~='0' and call('GET',F)~=token then return -1 end\n"
           "  call('DEL',K,B)\n"
           "  if #v==40 then tell(v,'b '..v) end\n"
           "  v=false\n"
           "end\n"
           "serve()\n"
           "return 1\n";

void scripts_init(struct scripts *s)
{
    lua_init(&s->claim, claim_source);
    lua_init(&s->confirm, confirm_source);
    lua_init(&s->release, release_source);
    lua_init(&s->renew, renew_source);
    lua_init(&s->show, show_source);
    lua_init(&s->break_, break_source);
}
