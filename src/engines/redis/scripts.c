#include "engines/redis/scripts.h"

#include "mutant.h"

/* Shared by all. `fits` is the rule: a claim is granted if all who hold are of its kind, and for
 * slots fewer than its own number. A server out of memory refuses to add anything to a script that
 * has not changed anything yet: what must work even then begins with a PEXPIRE or DEL. */
#define BEGIN                                                                                      \
    "local call=redis.call\n"                                                                      \
    "local K,Q,B,T,M,I,G=KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5],KEYS[6],KEYS[7]\n"                \
    "local v=call('GET',K)\n"

/* A counter that is not there yet starts at the server's clock, in tenths of a millisecond: above
 * whatever was counted before a FLUSHALL, and above the counters that earlier versions kept for
 * each name. It has fourteen digits, which is what Lua's .. writes exactly. */
#define TOKEN_FLOOR "1e12"
#define START_TOKEN                                                                                \
    "if token<" TOKEN_FLOOR " then\n"                                                              \
    "  token=math.max(" TOKEN_FLOOR ",t[1]*10000+math.floor(t[2]/100))\n"                          \
    "  call('SET',KEYS[4],token)\n"                                                                \
    "end\n"

/* Where a waiter stands: ms until what is in its way must have ended by itself (below 0: never),
 * its place in the queue, and, if it is the first behind another client's key, which may go without
 * a word to us, that key's value. */
#define STATUS                                                                                     \
    "local function by()\n"                                                                        \
    "  local b=v and #v==40 and call('GET',B)\n"                                                   \
    "  return b and string.sub(b,1,40)==v and string.sub(b,42)\n"                                  \
    "end\n"                                                                                        \
    "local function status(entry)\n"                                                               \
    "  local ms,rank=call('PTTL',K),call('ZRANK',Q,entry) or 0\n"                                  \
    "  if rank==1 and call('ZRANGE',Q,'0','0')[1]=='~gap' then rank=0 end\n"                       \
    "  if v=='~S' or v=='~N' then\n"                                                               \
    "    local t,ends=call('TIME'),call('ZRANGE',M,'0','0','WITHSCORES')[2]\n"                     \
    "    if ends then ms=math.max(0,ends-t[1]*1000-math.floor(t[2]/1000)) end\n"                   \
    "    return {0,ms,rank,''}\n"                                                                  \
    "  end\n"                                                                                      \
    "  local ours=rank>0 or not v or string.sub(v,1,2)=='~h' or by()\n"                            \
    "  return {0,ms,rank,ours and '' or string.sub(v,1,40)}\n"                                     \
    "end\n"

#define FUNCTIONS                                                                                  \
    "local function now() local t=call('TIME') return t[1]*1000+math.floor(t[2]/1000) end\n"       \
    "local function text(number) return string.format('%.0f',number) end\n"                       \
    "local function crowd() return v=='~S' or v=='~N' end\n"                                       \
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
    "  if mode=='s' then return v=='~S' end\n"                                                     \
    "  return mode=='n' and v=='~N' and call('ZCARD',M)<tonumber(slots)\n"                         \
    "end\n"                                                                                        \
    /* K and what goes with it never end before another member does */                             \
    "local function extend(owner,mode,px)\n"                                                       \
    "  if mode=='x' then call('PEXPIRE',K,px) call('PEXPIRE',B,px) return end\n"                   \
    "  local most=math.max(px,call('PTTL',K))\n"                                                   \
    "  call('PEXPIRE',K,most)\n"                                                                   \
    "  call('ZADD',M,now()+px,owner)\n"                                                            \
    "  call('PEXPIRE',M,most) call('PEXPIRE',I,most)\n"                                            \
    "end\n"                                                                                        \
    "local function draw(t)\n"                                                                     \
    "  local token=call('INCR',T)\n"                                                               \
    START_TOKEN                                                                                    \
    "  return token\n"                                                                             \
    "end\n"                                                                                        \
    /* K lives for px; what is beside an owner's, for as long as it will once it is confirmed */   \
    "local function put(owner,mode,px,life,terms)\n"                                               \
    "  local t=call('TIME')\n"                                                                     \
    "  local token=draw(t)\n"                                                                      \
    "  local record=text(token)..' '..t[1]..' '..t[2]..terms\n"                                    \
    "  if mode=='x' then\n"                                                                        \
    "    v=owner\n"                                                                                \
    "    call('SET',K,owner,'PX',px)\n"                                                            \
    "    call('SET',B,owner..' '..record,'PX',life)\n"                                             \
    "    return token\n"                                                                           \
    "  end\n"                                                                                      \
    "  if not v then v='~'..string.upper(mode) call('DEL',M,I) call('SET',K,v,'PX',px) end\n"      \
    "  call('HSET',I,owner,record)\n"                                                              \
    "  extend(owner,mode,tonumber(px))\n"                                                          \
    "  return token\n"                                                                             \
    "end\n"                                                                                        \
    /* the record of a grant that is the owner's, true if there is none, or false: not its own */  \
    "local function mine(owner,mode)\n"                                                            \
    "  if mode=='x' then return v==owner and (by() or true) end\n"                                 \
    "  return v=='~'..string.upper(mode) and call('HGET',I,owner)\n"                               \
    "end\n"                                                                                        \
    /* without its record a grant goes on with a token that is larger, and does no harm */         \
    "local function token_of(record)\n"                                                            \
    "  if record==true then return draw(call('TIME')) end\n"                                       \
    "  return record and tonumber(string.match(record,'^%d+'))\n"                                  \
    "end\n"                                                                                        \
    "local function since(record)\n"                                                               \
    "  local s,us=string.match(record,'^%d+ (%d+) (%d+)')\n"                                       \
    "  return s*1000+math.floor(us/1000)\n"                                                        \
    "end\n"                                                                                        \
    "local function read(entry)\n"                                                                 \
    "  return string.match(entry,'^(%S+) (%a) (%d+)( %d+ %d+ %d+ (%d+))$')\n"                      \
    "end\n"                                                                                        \
    "local function tell(owner,what)\n"                                                            \
    "  return call('PUBLISH','stile:'..string.sub(owner,1,16),what)\n"                             \
    "end\n"                                                                                        \
    "local function gap()\n"                                                                       \
    "  local till,seen=string.match(call('GET',G) or '','^(%d+) (%d+)$')\n"                        \
    "  return tonumber(till or 0),tonumber(seen or 0)\n"                                           \
    "end\n"                                                                                        \
    /* K is free for now: whether it stays so, for those who poll it. The first waiter looks */    \
    /* again when the gap ends. Those that nobody hears for are dropped: a queue of dead ones */   \
    /* would stay for an hour. */                                                                  \
    "local function leave_gap(me)\n"                                                               \
    "  local t,_,seen=now(),gap()\n"                                                               \
    "  local lately=t-seen<10000\n"                                                                \
    "  local ms=lately and 300 or 100\n"                                                           \
    "  local function first() return call('ZRANGE',Q,'0','0')[1] end\n"                            \
    "  call('ZREM',Q,'~gap')\n"                                                                    \
    "  local e=first()\n"                                                                          \
    "  while e and not v do\n"                                                                     \
    "    local owner=string.sub(e,1,40)\n"                                                         \
    "    if owner==me or tell(owner,'h '..owner..' '..ms)>0 then break end\n"                      \
    "    call('ZREM',Q,e) tell(owner,'g '..owner)\n"                                               \
    "    e=first()\n"                                                                              \
    "  end\n"                                                                                      \
    "  if not e then return false end\n"                                                           \
    "  call('ZADD',Q,(t+(lately and 1000 or 10000))*1000,'~gap')\n"                                \
    "  if v then return false end\n"                                                               \
    "  call('SET',G,text(t+ms)..' '..text(seen),'PX','10000')\n"                                   \
    "  return true\n"                                                                              \
    "end\n"                                                                                        \
    /* grants to the first in the queue, and on, as long as it fits; skips those that nobody hears */\
    /* for: one that listens on another node of a Cluster asks again. `me` has asked, and hears from */\
    /* its answer. */                                                                              \
    "local function serve(me)\n"                                                                   \
    "  if not v and call('EXISTS',G)==1 and gap()>now() then return end\n"                         \
    "  while true do\n"                                                                            \
    "    local e=call('ZRANGE',Q,'0','0')[1]\n"                                                    \
    "    if not e then return end\n"                                                               \
    "    if e=='~gap' then\n"                                                                      \
    "      if leave_gap(me) then return end\n"                                                     \
    "    else\n"                                                                                   \
    "      local owner,mode,px,terms,slots=read(e)\n"                                              \
    "      local fit=fits(mode,slots)\n"                                                           \
    "      if fit then\n"                                                                          \
    "        call('ZREM',Q,e)\n"                                                                   \
    "        if owner==me or tell(owner,'g '..owner)>0 then put(owner,mode,1000,px+1000,terms) end\n"   \
    "      elseif owner==me or tell(owner,'h '..owner)>0 then\n"                                   \
    "        return\n"                                                                             \
    "      else\n"                                                                                 \
    "        call('ZREM',Q,e) tell(owner,'g '..owner)\n"                                           \
    "      end\n"                                                                                  \
    "    end\n"                                                                                    \
    "  end\n"                                                                                      \
    "end\n"

/* Each call, and each function or number made into text, costs the server some per cent of all it
 * does for a plain SET: here are as few as will do. INCR comes first, as it may fail. */
static const char take_source[] =
    "local call,owner=redis.call,ARGV[1]\n"
#ifdef MUTANT_REDIS_TAKE_OVERTAKES
    "if call('EXISTS',KEYS[1])>0 then return 0 end\n"
#else
    "if call('EXISTS',KEYS[1],KEYS[2])>0 then return 0 end\n"
#endif
    "local token,t=call('INCR',KEYS[4]),call('TIME')\n" START_TOKEN
    "call('PSETEX',KEYS[1],ARGV[2],owner)\n"
    "call('PSETEX',KEYS[3],ARGV[2],owner..' '..token..' '..t[1]..' '..t[2]..ARGV[3])\n"
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
 * is in line already is served first, and a clock that is set back does not put a newcomer before
 * others. A newcomer disturbs nobody but where it could go in; behind an exclusive holder that is
 * nowhere, and needs none of the functions. */
static const char claim_source[] =
    BEGIN STATUS "local owner,mode,px,terms,slots=ARGV[1],ARGV[2],ARGV[3],ARGV[4],ARGV[5]\n"
                 "local entry=owner..' '..mode..' '..px..terms\n"
                 "local again=ARGV[7]=='1'\n"
                 "local function enqueue()\n"
                 "  local t=call('TIME')\n"
                 "  local at,last=t[1]*1000000+t[2],call('ZREVRANGE',Q,'0','1','WITHSCORES')\n"
                 "  local i=last[1]=='~gap' and 4 or 2\n"
                 "  if last[i] and last[i]+0>=at then at=last[i]+1 end\n"
                 "  if ARGV[8]=='1' then\n"
                 "    call('ZADD',Q,'NX',at,entry,at+2000000,'~gap')\n"
                 "  else\n"
                 "    call('ZADD',Q,'NX',at,entry)\n"
                 "  end\n"
                 "  call('PEXPIRE',Q,'3600000')\n"
                 "end\n"
                 "if v and v~='~S' and v~='~N' and ARGV[6]=='1' and not again then\n"
                 "  enqueue()\n"
                 "  return status(entry)\n"
                 "end\n" FUNCTIONS "purge()\n"
                 "local behind=tonumber(ARGV[9])\n"
                 "if behind>0 then\n"
                 "  local t=now()\n"
                 "  redis.pcall('SET',G,text(gap())..' '..text(t),'PX','10000')\n"
                 "  if ARGV[8]=='1' and call('ZSCORE',Q,'~gap') then\n"
                 "    call('ZADD',Q,(t+math.max(200,math.min(behind,10000)))*1000,'~gap')\n"
                 "  end\n"
                 "end\n"
                 "if again or fits(mode,slots) then serve(owner) end\n"
                 "local token=again and token_of(mine(owner,mode))\n"
                 "if token then extend(owner,mode,tonumber(px)) return {1,token} end\n"
                 "if fits(mode,slots) and call('EXISTS',Q)==0 then\n"
                 "  return {1,put(owner,mode,px,px,terms)}\n"
                 "end\n"
                 "if ARGV[6]=='1' and not (again and call('ZSCORE',Q,entry)) then enqueue() end\n"
                 "local s=status(entry)\n"
                 "if not v then s[2]=math.max(0,gap()-now()) end\n"
                 "return s\n";

/* Changes nothing. One that could go in but for those before it asks again: one of them may have
 * died, and nobody but the server's next step finds out. ZREM removes nothing; a replica refuses
 * it, and so do we learn that we have to look elsewhere. */
static const char look_source[] =
    BEGIN STATUS "local owner,mode,slots=ARGV[1],ARGV[2],tonumber(ARGV[5])\n"
                 "local entry=owner..' '..mode..' '..ARGV[3]..ARGV[4]\n"
                 "call('ZREM',Q,'')\n"
                 "if not call('ZSCORE',Q,entry) then return {1} end\n"
                 "local s=status(entry)\n"
                 "if not v then\n"
                 "  local t,till=call('TIME'),string.match(call('GET',G) or '','^(%d+)')\n"
                 "  local left=(till or 0)-t[1]*1000-math.floor(t[2]/1000)\n"
                 "  if left<=0 then return {1} end\n"
                 "  s[2]=left\n"
                 "elseif v=='~S' and mode=='s' or s[2]==0 then\n"
                 "  return {1}\n"
                 "elseif v=='~N' and mode=='n' and call('ZCARD',M)<slots then\n"
                 "  return {1}\n"
                 "end\n"
                 "return s\n";

static const char confirm_source[] =
    BEGIN "local owner,mode=ARGV[1],ARGV[2]\n"
          "if mode=='x' then\n"
          "  if v~=owner then return 0 end\n"
          "  call('PEXPIRE',K,ARGV[3])\n"
          "  local whose,token=string.match(call('GET',B) or '','^(%S+) (%d+)')\n"
          "  if whose==owner then return tonumber(token) end\n"
          "end\n" STATUS FUNCTIONS "purge()\n"
          "local token=token_of(mine(owner,mode))\n"
          "if token then extend(owner,mode,tonumber(ARGV[3])) end\n"
          "return token or 0\n";

/* Whoever knows the owner value goes on with what was requested; a TTL that is given replaces the
 * one before. Without a record there is only what is given. */
static const char resume_source[] = BEGIN STATUS FUNCTIONS
    "local owner,mode=ARGV[1],'x'\n"
    "purge()\n"
    "if crowd() then mode=string.lower(string.sub(v,2)) end\n"
    "local record=mine(owner,mode)\n"
    "if not record then return 0 end\n"
    "local token,ttl,hold,delay,slots=0,ARGV[3],0,0,0\n"
    "local t=now()\n"
    "local began=t\n"
    "if record==true then\n"
    "  token=draw(call('TIME'))\n"
    "else\n"
    "  began=since(record)\n"
    "  token,ttl,hold,delay,slots=string.match(record,'^(%d+) %d+ %d+ (%d+) (%d+) (%d+) (%d+)$')\n"
    "end\n"
    "if ARGV[2]~='' then ttl=ARGV[2] end\n"
    "local px=math.max(ttl+delay,hold-(t-began))\n"
    "record=text(token)..' '..math.floor(began/1000)..' '..began%1000*1000\n"
    "  ..' '..ttl..' '..hold..' '..delay..' '..slots\n"
    "extend(owner,mode,px)\n"
    "if mode=='x' then call('SET',B,owner..' '..record,'PX',px) else call('HSET',I,owner,record) "
    "end\n"
    "local n=tonumber\n"
    "return {n(token),mode,n(ttl),n(hold),n(delay),n(slots),math.max(0,t-began)}\n";

/* From one exclusive holder to the next, which is what happens most, without functions: it grants
 * for a second. ZPOPMIN is allowed to a server out of memory, and all after it.
 *
 * What is left of hold_at_least or of a lock-delay stays, nobody's, on the server's clock. */
static const char release_source[] = BEGIN
    "local owner,mode,hold,delay=ARGV[1],ARGV[2],tonumber(ARGV[5]),tonumber(ARGV[6])\n"
#ifdef MUTANT_REDIS_DEL_WITHOUT_COMPARE
    "v=owner\n"
#endif
    "if v==owner and mode=='x' and hold+delay==0 then\n"
    "  local first=call('ZPOPMIN',Q)\n"
    "  if not first[1] then call('DEL',K,B) return 1 end\n"
    "  local to,px,terms=string.match(first[1],'^(%S+) x (%d+)( .*)$')\n"
    "  if not to then\n"
    "    call('ZADD',Q,first[2],first[1])\n"
    "  elseif call('PUBLISH','stile:'..string.sub(to,1,16),'g '..to)>0 then\n"
    "    local token,t=call('INCR',T),call('TIME')\n" START_TOKEN "    call('PSETEX',K,'1000',to)\n"
    "    call('PSETEX',B,px+1000,to..' '..token..' '..t[1]..' '..t[2]..terms)\n"
    "    return 1\n"
    "  end\n"
    "end\n" STATUS FUNCTIONS "purge()\n"
    "local record=mine(owner,mode)\n"
    "if not record then\n"
    "  local gone=call('ZREM',Q,owner..' '..mode..' '..ARGV[3]..ARGV[4])\n"
    "  serve()\n"
    "  return gone*2\n"
    "end\n"
    "local t=now()\n"
    "local left=record==true and 0 or since(record)+hold-t\n"
    "if mode=='x' then\n"
    "  if delay>0 then left=math.max(left,math.min(delay,call('PTTL',K))) end\n"
    "  call('DEL',B)\n"
    "  if left>0 then\n"
    "    v='~h'..text(token_of(record)) call('SET',K,v,'PX',left)\n"
    "  else\n"
    "    call('DEL',K) v=false\n"
    "  end\n"
    "else\n"
    "  if delay>0 then left=math.max(left,math.min(delay,call('ZSCORE',M,owner)-t)) end\n"
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
 * whole batch: the connection must leave it. */
static const char renew_source[] =
    "local call=redis.call\n"
    "local v,K,Q,B,T,M,I,G\n" STATUS FUNCTIONS "local out={}\n"
    "local function one(i)\n"
    "  local k=i*7-6\n"
    "  K,Q,B,T,M,I,G=KEYS[k],KEYS[k+1],KEYS[k+2],KEYS[k+3],KEYS[k+4],KEYS[k+5],KEYS[k+6]\n"
    "  v=call('GET',K)\n"
    "  purge()\n"
    "  local owner,mode=ARGV[i*3-2],ARGV[i*3-1]\n"
    "  local held=v==owner and mode=='x' or mode~='x' and mine(owner,mode)\n"
    /* a replica that runs behind may not know it: it may not say so, as it can't write either */
    "  if held then extend(owner,mode,tonumber(ARGV[i*3])) else call('ZREM',Q,'') end\n"
    "  out[i]=held and 1 or 0\n"
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

/* Sessions describe themselves once, at stem..session, in the same slot. While nobody holds the
 * lock, a waiter that nobody hears for is dead, or about to ask again: when a holder and all its
 * waiters have died, their entries would be shown for an hour. */
static const char show_source[] = BEGIN STATUS FUNCTIONS
    "purge()\n"
    "local known={}\n"
    "local function who(owner)\n"
    "  local s=string.sub(owner,1,16)\n"
    "  known[s]=known[s] or call('GET',ARGV[1]..s) or ''\n"
    "  return known[s]\n"
    "end\n"
    "local m,q,token={},call('ZRANGE',Q,0,-1,'WITHSCORES'),call('GET',T)\n"
    "local ghost=v and string.match(v,'^~h(%d+)')\n"
    "if crowd() then\n"
    "  local z,most=call('ZRANGE',M,0,-1,'WITHSCORES'),0\n"
    "  for i=1,#z,2 do\n"
    "    local r=call('HGET',I,z[i])\n"
    "    local said=r and string.match(r,'^%d+')..' '..text(since(r))..' '..who(z[i]) or ''\n"
    "    m[#m+1]={z[i],z[i+1],said}\n"
    "    most=math.max(most,r and token_of(r) or 0)\n"
    "  end\n"
    "  if most>0 then token=text(most) end\n"
    "end\n"
    "local b=by()\n"
    "if b then token=string.match(b,'^%d+') b=text(since(b))..' '..who(v) end\n"
    "if ghost then token=ghost v='~h' end\n"
    "local line,free={},not v and gap()<=now()\n"
    "for i=1,#q,2 do\n"
    "  local owner,mode,_,_,slots=read(q[i])\n"
    "  if owner and not (free and tell(owner,'h '..owner)==0) then\n"
    "    line[#line+1]=owner..' '..mode..' '..slots..' '..text(q[i+1]/1000)..' '..who(owner)\n"
    "  end\n"
    "end\n"
    "return {v,call('PTTL',K),token,b,text(now()),m,line}\n";

static const char break_source[] = BEGIN STATUS FUNCTIONS
    "local token=ARGV[1]\n"
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
    "  local granted=string.match(v,'^~h(%d+)') or string.match(by() or '','^%d+')\n"
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
    lua_init(&s->look, look_source);
    lua_init(&s->confirm, confirm_source);
    lua_init(&s->resume, resume_source);
    lua_init(&s->release, release_source);
    lua_init(&s->renew, renew_source);
    lua_init(&s->show, show_source);
    lua_init(&s->break_, break_source);
}
