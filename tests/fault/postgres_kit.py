"""What the tests of PostgreSQL servers in trouble have in common."""
import json

from sql_kit import expect, lost, refused, token_of, use, wait_for
from postgres_server import PostgresServer

__all__ = ["OURS", "findings", "lost", "on_server", "refused", "token_of", "use", "wait_for"]

OURS = "from pg_stat_activity where application_name like 'stile%'"


def findings(t, url=None):
    done = t.stile("doctor", "--json", *([url] if url else []))
    assert done.returncode in (0, 1, 2), done.stderr
    found = json.loads(done.stdout)["findings"]
    return {one["id"]: one["severity"] for one in found}


def on_server(*args, mode=None, **how):
    """The test gets a server that is started with these arguments, and has the schema."""
    def decorate(case):
        def with_server(t):
            with PostgresServer(*args, **how) as server:
                use(t, server, server.url + ("?mode=" + mode if mode else ""))
                done = t.stile("setup")
                expect(done.returncode, 0, done.stderr)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate
