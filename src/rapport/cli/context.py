"""`rapport context`: which messages of a group chat belong to a call, as a filter and as a timeline."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rapport.cli.output import make_plain_line
from rapport.cli.owner_option import owner_option
from rapport.domain.context_selection import (
    LOOKBACK_LIMIT,
    MAX_CONTEXT_TOKENS,
    MAX_RECENT_MESSAGES,
    SESSION_GAP_MINUTES,
    Strategy,
)
from rapport.domain.conversation import LOCAL_USER
from rapport.settings import Settings

if TYPE_CHECKING:
    from rapport.cli.timeline import TimelineView
    from rapport.domain.conversation import Conversation
    from rapport.domain.read_models import SearchHit
    from rapport.turns.explain import Explanation

app = typer.Typer(help="The context that an agent gets of a group chat: select, show, search.", no_args_is_help=True)

MAX_GAP = 5_256_000
"""The longest gap in minutes: ten years."""


SELECT = (
    "Choose context as a filter: a JSON request a line in, an answer a line out. Needs neither server nor database.\n\n"
    'A request is {"qid", "messages": [{"id", "author", "time", "text", "mentions", "reply_to"}], "trigger": {…}}; the '
    "trigger is the call, with the same fields. `time` is seconds since 1970 or ISO 8601; `mentions` and `reply_to` may "
    "be left out.\n\n"
    'The answer is {"qid", "ids"}, oldest first. The trigger is none of the messages, and its id is not in the answer. '
    f"What was said after the trigger, and more than {MAX_RECENT_MESSAGES} messages before it, is not looked at; what the trigger "
    "replies to always is.\n\n"
    'A line that can\'t be answered gets {"qid", "error"}; the others go on, and the command ends with 1.'
)


@app.command("select", help=SELECT)
def select_(
    strategy: Annotated[Strategy, typer.Option(help="The strategy of the selection.")] = "relevant",
    explain: Annotated[
        bool, typer.Option("--explain", help="Also print reasons, scores and the messages that were not selected.")
    ] = False,
    tokens: Annotated[
        int, typer.Option(min=1, help="Approximate limit of tokens of all selected messages.")
    ] = MAX_CONTEXT_TOKENS,
    lookback: Annotated[
        int, typer.Option(min=1, help="How many messages `time_gap` and `recent` consider.")
    ] = LOOKBACK_LIMIT,
    gap: Annotated[
        float, typer.Option(min=0, max=MAX_GAP, help="Minutes of silence that end a session for `time_gap`.")
    ] = SESSION_GAP_MINUTES,
) -> None:
    """Select context for requests on standard input, without a database."""
    import math

    from rapport.cli.context_filter import answer_all
    from rapport.context.engine import SelectionOptions
    from rapport.retrieval.embedders.wordllama import open_word_table

    if math.isnan(gap):
        raise typer.BadParameter("it is a number of minutes.", param_hint="--gap")

    def complain(reason: str) -> None:
        typer.secho(f"rapport: {make_plain_line(reason)}", fg="red", err=True)

    choice = SelectionOptions(strategy, tokens=tokens, lookback=lookback, gap_minutes=gap, words=open_word_table())
    try:
        is_good = answer_all(sys.stdin.buffer, sys.stdout.buffer, choice, explain=explain, complain=complain)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if not is_good:
        raise typer.Exit(1)


@app.command()
def show(
    message: Annotated[
        str,
        typer.Argument(
            help="The id of a reply, of the message it answers, or of any other message; a prefix is enough."
        ),
    ],
    user: Annotated[
        str, owner_option("The owner of the conversation; `local` is the user of a server without keys.")
    ] = LOCAL_USER,
    conversation: Annotated[
        str | None, typer.Option(help="Search only in this conversation: its id or a prefix of it.")
    ] = None,
    strategy: Annotated[
        Strategy | None, typer.Option(help="Show what this strategy would select now, instead of the stored context.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON of the HTTP route.")] = False,
) -> None:
    """Show the context of a reply with its reasons, as a timeline; for a message without a reply, what would be selected."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> tuple[Explanation, TimelineView]:
        from rapport.cli.explain_context import explain_message

        return await explain_message(settings, message, user=user, conversation=conversation, strategy=strategy)

    explanation, told = start(job, level="warning")
    if as_json:
        import orjson

        from rapport.channels.http.routes.context import context_view

        view = {"conversation_id": explanation.conversation.id, **context_view(explanation, operator=True)}
        typer.echo(orjson.dumps(view, option=orjson.OPT_INDENT_2).decode())
        return
    from rich.console import Console

    from rapport.cli.timeline import draw

    draw(Console(highlight=False), told)


@app.command()
def search(
    conversation: Annotated[str, typer.Argument(help="The id of a conversation or a prefix of it.")],
    question: Annotated[str, typer.Argument(help="A question, or a few words. Names of participants count.")],
    user: Annotated[
        str, owner_option("The owner of the conversation; `local` is the user of a server without keys.")
    ] = LOCAL_USER,
    topic: Annotated[str | None, typer.Option(help="Only in this forum topic.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="Maximum number of messages.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON of the HTTP route.")] = False,
) -> None:
    """Search the messages of a conversation, the best match first."""
    from rapport.cli.main import start

    async def job(settings: Settings) -> tuple[Conversation, list[SearchHit]]:
        from rapport.cli.explain_context import search_conversation

        return await search_conversation(settings, conversation, question, user=user, topic=topic, limit=limit)

    found, hits = start(job, level="warning")
    if as_json:
        import orjson

        from rapport.channels.http.routes.context import search_hit_view

        view = {"conversation_id": found.id, "messages": [search_hit_view(hit) for hit in hits]}
        typer.echo(orjson.dumps(view, option=orjson.OPT_INDENT_2).decode())
        return
    if not hits:
        typer.echo("Nothing like that was found.")
    for one in hits:
        author = (
            one.message.author.name if one.message.author else "the agent" if one.message.role == "assistant" else "you"
        )
        typer.echo(
            f"{one.message.created_at:%Y-%m-%d %H:%M}  {make_plain_line(author, limit=40)}  {make_plain_line(one.message.text, limit=300)}"
        )
