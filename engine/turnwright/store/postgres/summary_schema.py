"""The tables beside the journals of a PostgreSQL store: summaries (`postgres/summaries.py`) and annotations."""

from typing import Final

#: Copies turns into rows without names and totals, which readers write: drivers do not look for secrets.
NEW_SUMMARIES: Final = (
    "INSERT INTO turnwright_summaries (number, names, root, agent, model, created_at)"
    " SELECT number, '', (strpos(turn_id, ':') = 0)::integer, '', '', created_at FROM turnwright_turns"
)
#: Rows of an older release have names with their secrets.
UNNAMED: Final = (
    "UPDATE turnwright_summaries SET seq = 0, complete = 0, turn_id = '', agent = '', model = '', session = NULL"
)
#: `seq` is the last fact up to which a turn is summarized. `complete`: it has ended, and nothing will change.
SUMMARIES: Final = f"""
    CREATE TABLE turnwright_summaries (
        number bigint PRIMARY KEY,
        turn_id text COLLATE "C" NOT NULL,
        root integer NOT NULL,
        agent text NOT NULL,
        model text NOT NULL,
        session text COLLATE "C",
        created_at double precision NOT NULL,
        seq bigint NOT NULL DEFAULT 0,
        complete integer NOT NULL DEFAULT 0,
        outcome text,
        reason text,
        steps bigint NOT NULL DEFAULT 0,
        tool_calls bigint NOT NULL DEFAULT 0,
        input_tokens bigint NOT NULL DEFAULT 0,
        output_tokens bigint NOT NULL DEFAULT 0,
        cached_tokens bigint NOT NULL DEFAULT 0,
        reasoning_tokens bigint NOT NULL DEFAULT 0,
        cost double precision NOT NULL DEFAULT 0,
        seconds double precision NOT NULL DEFAULT 0,
        retries bigint NOT NULL DEFAULT 0,
        pauses bigint NOT NULL DEFAULT 0,
        sub_turns bigint NOT NULL DEFAULT 0,
        fault text NOT NULL DEFAULT ''
    );
    {NEW_SUMMARIES.replace("names", "turn_id", 1)};
    CREATE INDEX turnwright_summaries_to_write ON turnwright_summaries (number) WHERE complete = 0;
    CREATE INDEX turnwright_live_turns ON turnwright_turns (number) WHERE live;
    CREATE TABLE turnwright_failures (
        number bigint NOT NULL,
        tool text NOT NULL,
        failed bigint NOT NULL,
        PRIMARY KEY (number, tool)
    );
    CREATE TABLE turnwright_search (
        turn_number bigint PRIMARY KEY,
        prompt text NOT NULL,
        answer text NOT NULL,
        words tsvector NOT NULL
    );
    CREATE INDEX turnwright_search_words ON turnwright_search USING gin (words);
"""
#: The calls of each turn's tools. Turns that were summarized before are summarized again.
TOOLS: Final = """
    CREATE TABLE turnwright_tools (
        number bigint NOT NULL,
        tool text NOT NULL,
        calls bigint NOT NULL,
        failed bigint NOT NULL,
        millis text NOT NULL,
        PRIMARY KEY (number, tool)
    );
    UPDATE turnwright_summaries SET seq = 0, complete = 0;
"""
#: From here on an index has all that the page of agents reads, and a search for a common word reads few pages, because
#: texts are beside their table. Turns are summarized again.
MEASURES: Final = """
    ALTER TABLE turnwright_summaries RENAME COLUMN turn_id TO names;
    ALTER TABLE turnwright_summaries
        ALTER COLUMN agent TYPE text COLLATE "C",
        ALTER COLUMN model TYPE text COLLATE "C",
        ADD COLUMN measures text NOT NULL DEFAULT '';
    UPDATE turnwright_summaries SET seq = 0, complete = 0, names = '', agent = '', model = '', session = NULL;
    ALTER TABLE turnwright_search SET (toast_tuple_target = 128);
    CREATE INDEX turnwright_summaries_by_agent ON turnwright_summaries (agent, model, outcome, reason)
        INCLUDE (number, created_at, cost, measures, names) WHERE root = 1 AND outcome IS NOT NULL;
"""
ANNOTATIONS: Final = """
    CREATE TABLE turnwright_annotations (
        turn_id text COLLATE "C" NOT NULL,
        kind text NOT NULL,
        name text COLLATE "C" NOT NULL,
        value double precision,
        text text NOT NULL,
        at double precision NOT NULL,
        PRIMARY KEY (turn_id, kind, name)
    );
"""
TAGS: Final = "CREATE INDEX turnwright_tags ON turnwright_annotations (name, turn_id) WHERE kind = 'tag'"
