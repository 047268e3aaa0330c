"""What the tests of PostgreSQL servers in trouble have in common."""
from sql_kit import expect, lost, refused, token_of, use, wait_for
from postgres_server import PostgresServer

__all__ = ["OURS", "lost", "on_server", "refused", "token_of", "use", "wait_for"]

OURS = "from pg_stat_activity where application_name like 'stile%'"


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
