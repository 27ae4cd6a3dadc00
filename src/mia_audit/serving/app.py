"""The HTTP interface: POST /explain, GET /budget, /health, /openapi.json, and a page that describes the interface and loads nothing else."""

import asyncio
from html import escape
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mia_audit.serving.desk import Desk, Refused
from mia_audit.serving.keys import Keys
from mia_audit.serving.queries import largest_body, record_of, schema

PATIENCE = 30.0
"""Time limit for the body of a request, in seconds."""
POLICY = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}
ERRORS = {
    400: "not JSON",
    401: "the caller's key is missing or unknown",
    403: "a budget is exhausted, and the history has no explanation of the query's class; `left` states the remaining budgets",
    408: "the body did not arrive in time",
    413: "the body is too large",
    422: "the query does not have the explanation set's shape or domain, or the black box has no value for it",
    429: "too many queries of this caller are waiting",
    503: "too many queries are waiting, or the ledger has failed",
}


def create_app(desk: Desk, keys: Keys) -> FastAPI:
    """Return the application; keys are read from the header `Authorization: Bearer KEY`."""
    shape, dtype = desk.explainer.explained.records.shape[1:], desk.subject.dtype
    bearer = HTTPBearer(auto_error=False, description="The caller's key")

    async def caller_of(given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> str:
        caller = keys.caller_of(given.credentials) if given else None
        if caller is None:
            raise Refused(401, "expected a caller's key in the header 'Authorization: Bearer KEY'")
        return caller

    Caller = Annotated[str, Depends(caller_of)]
    app = FastAPI(
        title="Private explanations",
        version="1",
        description=described(desk.facts()),
        docs_url=None,
        redoc_url=None,
    )
    body = {"required": True, "content": {"application/json": {"schema": schema(shape)}}}
    errors: dict[int | str, Any] = {status: {"description": text} for status, text in ERRORS.items()}

    @app.post("/explain", summary="Explain one query", responses=errors, openapi_extra={"requestBody": body})
    async def explain(request: Request, caller: Caller) -> JSONResponse:
        """Answer with the explanation in units of 1/scale, its class, source, steps and cost (μ²), and the remaining budgets."""
        record = record_of(await body_of(request, largest_body(shape)), shape, dtype)
        return JSONResponse(await desk.explain(record, caller))

    @app.get("/budget", summary="The guarantee, and the spent and remaining budgets", responses={401: errors[401]})
    async def budget(caller: Caller) -> dict[str, Any]:
        """Answer with the terms of the service, and the spent and remaining parts of the total and of the caller's budget."""
        return desk.facts() | {"caller": caller, "left": desk.left(caller)}

    @app.get("/health", summary="The state of the service", responses={503: errors[503]})
    async def health() -> dict[str, str]:
        """Answer 'ok', or 503 when the ledger has failed."""
        desk.refuse_failed()
        return {"status": "ok"}

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()), headers=POLICY)

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Refused)
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        left = {"left": error.left} if error.left else {}
        return JSONResponse({"error": error.reason} | left, error.status, headers)

    async def http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    async def crashed(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "an error in the service; its log has the details"}, 500)

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, crashed)
    return app


async def body_of(request: Request, largest: int) -> bytes:
    """Return the body of a request. Raises Refused if the body is too large or does not arrive in time."""
    content = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                content += part
                if len(content) > largest:
                    raise Refused(413, f"the body has more than {largest:,} bytes, the most that a query can have")
    except TimeoutError:
        raise Refused(408, f"the body did not arrive in {PATIENCE:g} seconds") from None
    except ClientDisconnect:
        raise Refused(400, "the caller closed the connection") from None
    return bytes(content)


def described(facts: dict[str, Any]) -> str:
    """Return the guarantee in one or two sentences."""
    card = facts["black_box"]
    trained = (
        ""
        if card is None or card["epsilon"] is None
        else f" The black box's own training: ε = {card['epsilon']:.4g} at δ = {card['delta']:g} per {card['unit']}"
        f" ({card['adjacency']}; accountant: {card['accountant']})."
    )
    return (
        f"Explanations from {facts['units']} {facts['unit']}s: all answers to all callers together have"
        f" ε = {facts['epsilon']:g} at δ = {facts['delta']:g} per {facts['unit']} ({facts['adjacency']}; accountant:"
        f" {facts['accountant']}), for a fixed black box.{trained}"
    )


def page(openapi: dict[str, Any]) -> str:
    """Return the interface as a page without scripts, styles or external links."""
    parts = [f"<h1>{escape(openapi['info']['title'])}</h1><p>{escape(openapi['info']['description'])}</p>"]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            rows = "".join(
                f"<tr><td>{escape(status)}</td><td>{escape(one['description'])}</td></tr>"
                for status, one in operation["responses"].items()
            )
            parts.append(
                f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation['summary'])}."
                f" {escape(operation.get('description', ''))}</p><table>{rows}</table>"
            )
    parts.append('<p>Keys: <code>Authorization: Bearer KEY</code>. <a href="openapi.json">openapi.json</a></p>')
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Private explanations</title>{"".join(parts)}</html>'
