#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# A fence for an HTTP API: a holder that was paused sends its request after its lease, and is refused.
#
# The API knows nothing of locks. nginx in front of it remembers the highest token and refuses smaller
# ones. Needs curl, python3 and nginx with its Lua module (Debian: nginx libnginx-mod-http-lua).
set -eu
dir=$(mktemp -d)
trap 'kill $api $nginx 2>/dev/null; wait; rm -rf "$dir"' EXIT
export STILE_ENGINE="local:$dir/locks"
api='' nginx=''

# The API: PUT stores a text, GET returns it.
python3 - "$dir/upstream" <<'END' &
import http.server, socketserver, sys
text = b"nothing\n"
class API(http.server.BaseHTTPRequestHandler):
    def reply(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        self.reply()
    def do_PUT(self):
        global text
        text = self.rfile.read(int(self.headers["Content-Length"])) + b"\n"
        self.reply()
    def log_message(self, *_):
        pass
socketserver.ThreadingUnixStreamServer(sys.argv[1], API).serve_forever()
END
api=$!

# nginx, with what stile prints. As a service it would include this in /etc/nginx/conf.d.
mkdir -m 0700 "$dir/state"
stile guard nginx --listen "unix:$dir/guard" --upstream "http://unix:$dir/upstream:" \
    --state-dir "$dir/state" > "$dir/guard.conf"
cat > "$dir/nginx.conf" <<END
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
user $(id -un) $(id -gn);
pid $dir/pid;
daemon off;
events {}
http {
    access_log off;
    client_body_temp_path $dir/body;
    proxy_temp_path $dir/proxy;
    fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi;
    scgi_temp_path $dir/scgi;
    include $dir/guard.conf;
}
END
/usr/sbin/nginx -p "$dir" -e "$dir/error.log" -c "$dir/nginx.conf" 2>/dev/null &
nginx=$!
until [ -S "$dir/guard" ] && [ -S "$dir/upstream" ]; do sleep 0.05; done

# One request through the guard: its status, and the first line of the answer.
put() {
    curl -s --unix-socket "$dir/guard" -X PUT -H 'Fencing-Resource: ledger' -H "Fencing-Token: $1" \
        -d "$2" -o "$dir/answer" -w '%{http_code} ' http://api/
    cat "$dir/answer"
}

# Each run of the command is a holder of the lock, with a larger token than the one before.
early=$(stile run ledger -- sh -c 'echo $STILE_TOKEN')
put "$early" 'opening balance'

# The first holder is paused with its next request prepared. Its lease ends, and another one works.
late=$(stile run ledger -- sh -c 'echo $STILE_TOKEN')
put "$late" '100 paid in'

put "$early" 'overwritten' # it runs again, too late
curl -s --unix-socket "$dir/guard" http://api/
