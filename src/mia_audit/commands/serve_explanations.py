"""`mia-audit serve-explanations`: answer callers with private explanations over HTTP, within their budgets."""

import argparse
import sys
from pathlib import Path

from mia_audit.commands._arguments import add_threads
from mia_audit.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("service", type=Path, help="YAML file of the service, with its callers and their terms")
    parser.add_argument(
        "--new-key", metavar="NAME", help="create a key for this caller and print it once, instead of serving"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0: any free port (8000)")
    add_threads(parser)


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM, or create a key."""
    from threadpoolctl import threadpool_limits

    from mia_audit.serving.keys import new_key, read_keys
    from mia_audit.serving.section import read_served

    served = read_served(options.service)
    if options.new_key is not None:
        if options.new_key not in served.callers:
            raise UserError(
                f"--new-key {options.new_key}: not a caller of {options.service}; add it under 'callers' first"
            )
        print(new_key(Path(served.keys), options.new_key))
        return
    keys = read_keys(Path(served.keys), served.callers)
    try:
        from mia_audit.serving.app import create_app, described
        from mia_audit.serving.server import listen, serve
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is missing, and serving explanations needs it; install it with: pip install 'mia-audit[serve]'"
        ) from None
    from mia_audit.serving.desk import Desk
    from mia_audit.serving.subject import open_subject

    with threadpool_limits(options.threads), listen(options.host, options.port) as listener:
        desk = Desk(open_subject(served, options.threads), served.callers)
        app = create_app(desk, keys)
        print(described(desk.facts()), file=sys.stderr)
        host, port = listener.getsockname()[:2]
        print(f"serving at http://{f'[{host}]' if ':' in host else host}:{port}, page at /docs", flush=True)
        serve(app, desk, listener)
