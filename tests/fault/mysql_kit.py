"""What the tests of MariaDB servers in trouble have in common."""
import json

from sql_kit import expect, lost, refused, token_of, use, wait_for
from mysql_server import MysqlServer

__all__ = ["findings", "lost", "on_server", "refused", "token_of", "use", "wait_for"]


def on_server(*args, mode=None, **how):
    """The test gets a server that is started with these arguments, and has the tables."""
    def decorate(case):
        def with_server(t):
            with MysqlServer(*args, **how) as server:
                use(t, server, server.url + ("?mode=" + mode if mode else ""))
                done = t.stile("setup")
                expect(done.returncode, 0, done.stderr)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def findings(t):
    done = t.stile("doctor", "--json")
    return {(found["severity"], found["id"]) for found in json.loads(done.stdout)["findings"]}
