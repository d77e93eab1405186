-- Times are microseconds since 1970-01-01T00:00:00Z. Records are known inside by dense row numbers, outside by their ids.

-- Text that stands in keys, by number: names of lifecycles, states, fields, unique keys and limits.
CREATE TABLE names (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Lifecycle files as they were given together: JSON, pairs of name and text.
CREATE TABLE sources (
    id    INTEGER PRIMARY KEY,
    files TEXT NOT NULL
) STRICT;

-- Every version of every lifecycle, in the order in which they came.
CREATE TABLE definitions (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL,
    hash   TEXT NOT NULL UNIQUE,
    source INTEGER NOT NULL REFERENCES sources (id)
) STRICT;

CREATE TABLE records (
    row           INTEGER PRIMARY KEY,
    id            BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    definition    INTEGER NOT NULL REFERENCES definitions (number),
    state         INTEGER NOT NULL,
    version       INTEGER NOT NULL CHECK (version > 0),
    owner         TEXT NOT NULL,
    fields        TEXT NOT NULL,
    attempt       INTEGER NOT NULL CHECK (attempt >= 0),
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    started_at    INTEGER,
    finished_at   INTEGER,
    entered_at    INTEGER NOT NULL,
    hold          INTEGER NOT NULL CHECK (hold >= 0),
    timers        TEXT,
    committed     INTEGER,
    payload       BLOB CHECK (length(payload) = 32),
    payload_bytes INTEGER,
    stuck         TEXT,
    head          BLOB NOT NULL CHECK (length(head) = 32), -- hash of its last log entry
    entry         INTEGER NOT NULL,                        -- place of its last log entry
    links         INTEGER NOT NULL DEFAULT 0,              -- raised when a link to it comes or goes
    trace         BLOB CHECK (length(trace) = 25)          -- of the request that made it
) STRICT;

-- One leased attempt. The newest of a record has its `attempt` as token.
CREATE TABLE executions (
    record          INTEGER NOT NULL,
    token           INTEGER NOT NULL CHECK (token > 0),
    worker          TEXT NOT NULL,
    holder          TEXT NOT NULL,
    status          INTEGER NOT NULL CHECK (status BETWEEN 0 AND 4),
    leased_at       INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    started_at      INTEGER,
    finished_at     INTEGER,
    abort_code      TEXT,
    abort_retryable INTEGER,
    finish_moves    INTEGER NOT NULL,
    key             TEXT,
    PRIMARY KEY (record, token)
) STRICT, WITHOUT ROWID;

-- A record with its newest execution, as the program reads it.
CREATE VIEW whole AS
SELECT r.row, r.id, r.definition, r.state, r.version, r.owner, r.fields, r.attempt, r.created_at, r.updated_at, r.started_at,
    r.finished_at, r.entered_at, r.hold, r.timers, r.committed, r.payload, r.payload_bytes, r.stuck, r.head, r.entry, r.trace,
    e.token, e.worker, e.holder, e.status, e.leased_at, e.expires_at, e.started_at AS begun_at,
    e.finished_at AS ended_at, e.abort_code, e.abort_retryable, e.finish_moves, e.key
FROM records r LEFT JOIN executions e ON e.record = r.row AND e.token = r.attempt;

-- At most one for a job, for ever.
CREATE TABLE effects (
    record INTEGER PRIMARY KEY,
    token  INTEGER NOT NULL,
    result TEXT NOT NULL
) STRICT;

CREATE TABLE uniques (
    lifecycle INTEGER NOT NULL,
    name      INTEGER NOT NULL,
    parts     TEXT NOT NULL,
    holder    BLOB NOT NULL CHECK (length(holder) = 16),
    PRIMARY KEY (lifecycle, name, parts)
) STRICT, WITHOUT ROWID;

-- `window` is that of a limit per length of time, else the smallest number there is.
CREATE TABLE counts (
    lifecycle INTEGER NOT NULL,
    name      INTEGER NOT NULL,
    parts     TEXT NOT NULL,
    window    INTEGER NOT NULL,
    count     INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (lifecycle, name, parts, window)
) STRICT, WITHOUT ROWID;

-- Named accounts; what a record holds stands in the record.
CREATE TABLE accounts (
    asset   TEXT NOT NULL,
    name    TEXT NOT NULL,
    outside INTEGER NOT NULL,
    balance INTEGER NOT NULL CHECK (balance >= 0 OR outside),
    PRIMARY KEY (asset, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE links (
    target    INTEGER NOT NULL,
    lifecycle INTEGER NOT NULL,
    field     INTEGER NOT NULL,
    source    INTEGER NOT NULL,
    PRIMARY KEY (target, lifecycle, field, source)
) STRICT, WITHOUT ROWID;

-- Unfinished jobs of ordered work keys, the oldest first.
CREATE TABLE queues (
    lifecycle  INTEGER NOT NULL,
    parts      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    id         BLOB NOT NULL,
    PRIMARY KEY (lifecycle, parts, created_at, id)
) STRICT, WITHOUT ROWID;

-- What may be leased, the smallest rank first: its time, `ready_at`, has come. Of a work key only as many as may run.
CREATE TABLE ready (
    lifecycle  INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    record     INTEGER NOT NULL,
    ready_at   INTEGER NOT NULL,
    definition INTEGER NOT NULL,
    key        TEXT,
    PRIMARY KEY (lifecycle, rank, record)
) STRICT, WITHOUT ROWID;

-- All waiting jobs of work keys whose time has come; those in front stand in `ready` too.
CREATE TABLE lanes (
    lifecycle  INTEGER NOT NULL,
    key        TEXT NOT NULL,
    front      INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    record     INTEGER NOT NULL,
    ready_at   INTEGER NOT NULL,
    definition INTEGER NOT NULL,
    PRIMARY KEY (lifecycle, key, front, rank, record)
) STRICT, WITHOUT ROWID;

-- When each record next needs the engine.
CREATE TABLE timers (
    due    INTEGER NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (due, record)
) STRICT, WITHOUT ROWID;

-- How many records of each version are in each state.
CREATE TABLE tallies (
    definition INTEGER NOT NULL,
    owner      TEXT NOT NULL,
    state      INTEGER NOT NULL,
    count      INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (definition, owner, state)
) STRICT, WITHOUT ROWID;

-- Bytes by their hash; empty where they never came. `refs` is the number of records that have them as payload.
CREATE TABLE contents (
    sha256 BLOB PRIMARY KEY CHECK (length(sha256) = 32),
    refs   INTEGER NOT NULL CHECK (refs >= 0),
    bytes  BLOB NOT NULL
) STRICT;

CREATE TABLE requests (
    owner  TEXT NOT NULL,
    key    TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    answer TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

-- The log. `previous` is the place of the same record's entry before, so that no index is needed to follow it.
CREATE TABLE history (
    seq      INTEGER PRIMARY KEY,
    record   INTEGER,
    version  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    previous INTEGER,
    text     TEXT NOT NULL,
    hash     BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

-- The last place in the log.
CREATE TABLE counter (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL
) STRICT;
INSERT INTO counter (one, seq) VALUES (1, 0);

-- How far pruning went: the place and the hash of the newest checkpoint in the log, and the last place that was taken from it.
CREATE TABLE pruned (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    checkpoint INTEGER NOT NULL,
    floor      INTEGER NOT NULL,
    head       BLOB NOT NULL CHECK (length(head) = 32)
) STRICT;
INSERT INTO pruned (one, checkpoint, floor, head) VALUES (1, 0, 0, zeroblob(32));

-- Jobs whose time has not come, by that time. Whoever looks for work when it has puts them where they belong: into `ready`, or into
-- the lane of their work key.
CREATE TABLE later (
    ready_at   INTEGER NOT NULL,
    record     INTEGER NOT NULL,
    lifecycle  INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    definition INTEGER NOT NULL,
    key        TEXT,
    PRIMARY KEY (ready_at, record)
) STRICT, WITHOUT ROWID;

-- Which version became the current one of its lifecycle, in this order: each when it came, and whenever somebody wanted it.
CREATE TABLE turns (
    number     INTEGER PRIMARY KEY,
    definition INTEGER NOT NULL REFERENCES definitions (number),
    at         INTEGER NOT NULL,
    actor      TEXT -- who wanted it; nobody where it came
) STRICT;

-- API keys: the hash of each secret, and who calls with it. `roles` and `lifecycles` are JSON lists of names.
CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    hash       BLOB NOT NULL UNIQUE CHECK (length(hash) = 32), -- two keys never share a secret
    owner      TEXT NOT NULL CHECK (owner NOT IN ('', 'engine')),
    roles      TEXT NOT NULL,
    lifecycles TEXT,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- How often they were changed.
CREATE TABLE key_changes (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    changes INTEGER NOT NULL
) STRICT;
INSERT INTO key_changes (one, changes) VALUES (1, 0);

-- Which entries of the log moved something to or from a named account; what and why they say themselves.
CREATE TABLE entries (
    asset TEXT NOT NULL,
    name  TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (asset, name, seq)
) STRICT, WITHOUT ROWID;

-- Who came for jobs lately, by a hash of whose worker it is and what it calls itself.
CREATE TABLE workers (
    digest     BLOB PRIMARY KEY CHECK (length(digest) = 32),
    holder     TEXT NOT NULL,
    worker     TEXT NOT NULL,
    lifecycles TEXT NOT NULL,
    seen       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
