-- Times are microseconds since 1970-01-01T00:00:00Z. Records are known inside by their row numbers, outside by their ids.
-- All of it stands in a schema of its own, beside whatever else the database holds.

-- Text that stands in keys, by number: names of lifecycles, states, fields, unique keys and limits.
CREATE TABLE onceward.names (
    id   INTEGER PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE
);

-- Lifecycle files as they were given together: JSON, pairs of name and text.
CREATE TABLE onceward.sources (
    id    INTEGER PRIMARY KEY,
    files TEXT NOT NULL
);

-- Every version of every lifecycle, in the order in which they came.
CREATE TABLE onceward.definitions (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL,
    hash   TEXT COLLATE "C" NOT NULL UNIQUE,
    source INTEGER NOT NULL REFERENCES onceward.sources (id)
);

CREATE SEQUENCE onceward.record_rows;
CREATE SEQUENCE onceward.batch_numbers;

-- Rows change two or three times in a job's life. Room is left on each page, so that no index learns of it.
CREATE TABLE onceward.records (
    row           BIGINT PRIMARY KEY,
    id            UUID NOT NULL CONSTRAINT records_id UNIQUE,
    definition    INTEGER NOT NULL,
    state         SMALLINT NOT NULL,
    version       BIGINT NOT NULL CHECK (version > 0),
    owner         TEXT NOT NULL,
    fields        TEXT NOT NULL,
    attempt       BIGINT NOT NULL CHECK (attempt >= 0),
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    started_at    BIGINT,
    finished_at   BIGINT,
    entered_at    BIGINT NOT NULL,
    hold          BIGINT NOT NULL CHECK (hold >= 0),
    timers        TEXT,
    committed     BIGINT,
    payload       BYTEA CHECK (octet_length(payload) = 32),
    payload_bytes BIGINT,
    stuck         TEXT,
    head          BYTEA NOT NULL CHECK (octet_length(head) = 32), -- hash of its last log entry
    entry         BIGINT NOT NULL,                                -- `place` of its last log entry
    links         BIGINT NOT NULL DEFAULT 0,                      -- raised when a link to it comes or goes
    trace         BYTEA CHECK (octet_length(trace) = 25)          -- of the request that made it
) WITH (fillfactor = 45);

-- One leased attempt. The newest of a record has its `attempt` as token.
CREATE TABLE onceward.executions (
    record          BIGINT NOT NULL,
    token           BIGINT NOT NULL CHECK (token > 0),
    worker          TEXT NOT NULL,
    holder          TEXT NOT NULL,
    status          SMALLINT NOT NULL CHECK (status BETWEEN 0 AND 4),
    leased_at       BIGINT NOT NULL,
    expires_at      BIGINT NOT NULL,
    started_at      BIGINT,
    finished_at     BIGINT,
    abort_code      TEXT,
    abort_retryable BOOLEAN,
    finish_moves    BOOLEAN NOT NULL,
    key             TEXT,
    PRIMARY KEY (record, token)
) WITH (fillfactor = 45);

-- A record with its newest execution, as the program reads it.
CREATE VIEW onceward.whole AS
SELECT r.row, r.id, r.definition, r.state, r.version, r.owner, r.fields, r.attempt, r.created_at, r.updated_at, r.started_at,
    r.finished_at, r.entered_at, r.hold, r.timers, r.committed, r.payload, r.payload_bytes, r.stuck, r.head, r.entry, r.trace,
    e.token, e.worker, e.holder, e.status, e.leased_at, e.expires_at, e.started_at AS begun_at,
    e.finished_at AS ended_at, e.abort_code, e.abort_retryable, e.finish_moves, e.key
FROM onceward.records r LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt;

-- At most one for a job, for ever.
CREATE TABLE onceward.effects (
    record BIGINT PRIMARY KEY,
    token  BIGINT NOT NULL,
    result TEXT NOT NULL
);

-- Long `parts` stand as a hash, since an index takes no long text; then `whole` has the text.
CREATE TABLE onceward.uniques (
    lifecycle INTEGER NOT NULL,
    name      INTEGER NOT NULL,
    parts     TEXT COLLATE "C" NOT NULL,
    holder    UUID NOT NULL,
    whole     TEXT,
    PRIMARY KEY (lifecycle, name, parts)
);

-- `span` is the window of a limit per length of time, else the smallest number there is. Whoever changes who waits for a
-- work key locks the key's count of running jobs, so there is one for every work key, also of none.
CREATE TABLE onceward.counts (
    lifecycle INTEGER NOT NULL,
    name      INTEGER NOT NULL,
    parts     TEXT COLLATE "C" NOT NULL,
    span      BIGINT NOT NULL,
    count     BIGINT NOT NULL CHECK (count >= 0),
    whole     TEXT,
    PRIMARY KEY (lifecycle, name, parts, span)
) WITH (fillfactor = 50);

-- Named accounts; what a record holds stands in the record.
CREATE TABLE onceward.accounts (
    asset   TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    outside BOOLEAN NOT NULL,
    balance BIGINT NOT NULL CHECK (balance >= 0 OR outside),
    PRIMARY KEY (asset, name)
) WITH (fillfactor = 50);

CREATE TABLE onceward.links (
    target    BIGINT NOT NULL,
    lifecycle INTEGER NOT NULL,
    field     INTEGER NOT NULL,
    source    BIGINT NOT NULL,
    PRIMARY KEY (target, lifecycle, field, source)
);

-- Unfinished jobs of ordered work keys, the oldest first.
CREATE TABLE onceward.queues (
    lifecycle  INTEGER NOT NULL,
    parts      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    id         UUID NOT NULL,
    PRIMARY KEY (lifecycle, parts, created_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- What may be leased, the smallest rank first: its time, `ready_at`, has come. Of a work key only as many as may run.
CREATE TABLE onceward.ready (
    lifecycle  INTEGER NOT NULL,
    rank       BIGINT NOT NULL,
    record     BIGINT NOT NULL,
    ready_at   BIGINT NOT NULL,
    definition INTEGER NOT NULL,
    key        TEXT COLLATE "C",
    PRIMARY KEY (lifecycle, rank, record)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- All waiting jobs of work keys whose time has come; those in front stand in `ready` too.
CREATE TABLE onceward.lanes (
    lifecycle  INTEGER NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    front      BOOLEAN NOT NULL,
    rank       BIGINT NOT NULL,
    record     BIGINT NOT NULL,
    ready_at   BIGINT NOT NULL,
    definition INTEGER NOT NULL,
    PRIMARY KEY (lifecycle, key, front, rank, record)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- When each record next needs the engine.
CREATE TABLE onceward.timers (
    due    BIGINT NOT NULL,
    record BIGINT NOT NULL,
    PRIMARY KEY (due, record)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- How many records of each version are in each state.
CREATE TABLE onceward.tallies (
    definition INTEGER NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    state      INTEGER NOT NULL,
    count      BIGINT NOT NULL CHECK (count >= 0),
    PRIMARY KEY (definition, owner, state)
) WITH (fillfactor = 50);

-- Bytes by their hash; empty where they never came. `refs` is the number of records that have them as payload.
CREATE TABLE onceward.contents (
    sha256 BYTEA PRIMARY KEY CHECK (octet_length(sha256) = 32),
    refs   BIGINT NOT NULL CHECK (refs >= 0),
    bytes  BYTEA NOT NULL
);

CREATE TABLE onceward.requests (
    owner  TEXT COLLATE "C" NOT NULL,
    key    TEXT COLLATE "C" NOT NULL,
    digest BYTEA NOT NULL CHECK (octet_length(digest) = 32),
    answer TEXT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (owner, key)
);

-- The log. An entry's `place` is its batch's number times 2^20, and its number in the batch; `previous` is the place of the
-- same record's entry before, so that no index is needed to follow it.
CREATE TABLE onceward.history (
    place    BIGINT PRIMARY KEY,
    record   BIGINT,
    version  BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    previous BIGINT,
    text     TEXT NOT NULL,
    hash     BYTEA NOT NULL CHECK (octet_length(hash) = 32)
);

-- Where each batch stands in the log: its entries have the numbers from `first` to `last`. Written last of all, by whoever
-- holds the row of `log_end`, so that the order of the log is the order of commit.
CREATE TABLE onceward.batches (
    last  BIGINT PRIMARY KEY,
    first BIGINT NOT NULL CHECK (first <= last),
    batch BIGINT NOT NULL UNIQUE
);

-- Only ever locked, never changed: no dead row is left behind for each commit.
CREATE TABLE onceward.log_end (
    one INTEGER PRIMARY KEY CHECK (one = 1)
);
INSERT INTO onceward.log_end (one) VALUES (1);

-- How far pruning went: the place and the hash of the newest checkpoint in the log, and the last place that was taken from it.
-- Whoever prunes holds the row.
CREATE TABLE onceward.pruned (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    checkpoint BIGINT NOT NULL,
    floor      BIGINT NOT NULL,
    head       BYTEA NOT NULL CHECK (octet_length(head) = 32),
    looked_at  BIGINT NOT NULL DEFAULT 0 -- when a process last looked for what is over, by the database's own clock
);
INSERT INTO onceward.pruned (one, checkpoint, floor, head) VALUES (1, 0, 0, decode(repeat('00', 32), 'hex'));

-- Letters to the engine, from whoever may insert here: a call, under a key of its owner's by which it is carried out once.
-- The first columns are the sender's, the others the engine's. docs/postgres.md tells how to use it.
CREATE TABLE onceward.inbox (
    number      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner       TEXT NOT NULL CHECK (owner NOT IN ('', 'engine')),
    key         TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255 AND key !~ '[[:cntrl:]]'),
    roles       TEXT[] NOT NULL DEFAULT '{producer}' CHECK (array_position(roles, NULL) IS NULL AND 'engine' <> ALL (roles)),
    lifecycle   TEXT,
    event       TEXT NOT NULL DEFAULT 'create',
    record      UUID,
    input       JSONB NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(input) = 'object')
                CONSTRAINT inbox_input_size CHECK (octet_length(input::text) <= 1048576),
    sent_at     TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    taken_until TIMESTAMPTZ,
    answered_at TIMESTAMPTZ,
    subject     UUID,    -- the record that it was about
    status      INTEGER, -- of a refusal, with its code and the reason
    code        TEXT,
    reason      TEXT,
    UNIQUE (owner, key),
    CHECK (CASE WHEN event = 'create' THEN lifecycle IS NOT NULL ELSE record IS NOT NULL END)
);
CREATE INDEX inbox_waiting ON onceward.inbox (number) WHERE answered_at IS NULL;

-- Jobs whose time has not come, by that time. Whoever looks for work when it has puts them where they belong: into `ready`, or into
-- the lane of their work key. Whoever moves one with a key holds the key's count of running jobs.
CREATE TABLE onceward.later (
    ready_at   BIGINT NOT NULL,
    record     BIGINT NOT NULL,
    lifecycle  INTEGER NOT NULL,
    rank       BIGINT NOT NULL,
    definition INTEGER NOT NULL,
    key        TEXT COLLATE "C",
    PRIMARY KEY (ready_at, record)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Which version became the current one of its lifecycle, in this order: each when it came, and whenever somebody wanted it.
CREATE TABLE onceward.turns (
    number     INTEGER PRIMARY KEY,
    definition INTEGER NOT NULL REFERENCES onceward.definitions (number),
    at         BIGINT NOT NULL,
    actor      TEXT -- who wanted it; nobody where it came
);

-- API keys: the hash of each secret, and who calls with it. `roles` and `lifecycles` are JSON lists of names.
CREATE TABLE onceward.api_keys (
    id         TEXT COLLATE "C" PRIMARY KEY,
    hash       BYTEA NOT NULL UNIQUE CHECK (octet_length(hash) = 32), -- two keys never share a secret
    owner      TEXT NOT NULL CHECK (owner NOT IN ('', 'engine')),
    roles      TEXT NOT NULL,
    lifecycles TEXT,
    name       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

-- How often they were changed. Whoever changes them holds the row.
CREATE TABLE onceward.key_changes (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    changes BIGINT NOT NULL
);
INSERT INTO onceward.key_changes (one, changes) VALUES (1, 0);

-- Which entries of the log moved something to or from a named account, by their numbers; what and why they say themselves.
CREATE TABLE onceward.entries (
    asset TEXT COLLATE "C" NOT NULL,
    name  TEXT COLLATE "C" NOT NULL,
    seq   BIGINT NOT NULL,
    PRIMARY KEY (asset, name, seq)
);

-- Who came for jobs lately, by a hash of whose worker it is and what it calls itself.
CREATE TABLE onceward.workers (
    digest     BYTEA PRIMARY KEY CHECK (octet_length(digest) = 32),
    holder     TEXT NOT NULL,
    worker     TEXT NOT NULL,
    lifecycles TEXT NOT NULL,
    seen       BIGINT NOT NULL
) WITH (fillfactor = 50);

-- How often a server was started under a name of its own: leases of its earlier lives are over.
CREATE TABLE onceward.openings (
    name   TEXT COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9._-]{1,64}$'),
    number BIGINT NOT NULL
);
