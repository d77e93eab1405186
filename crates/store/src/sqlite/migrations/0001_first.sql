-- Times are microseconds since 1970-01-01T00:00:00Z. Tables reference records by row number; callers use record ids.

-- Numbers that keys use instead of names: names of lifecycles, states, fields, unique keys and limits.
CREATE TABLE names (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Sets of lifecycle files, as one call added them. JSON: pairs of name and text.
CREATE TABLE sources (
    id    INTEGER PRIMARY KEY,
    files TEXT NOT NULL
) STRICT;

-- Every version of every lifecycle, numbered in the order in which they were added.
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
    head          BLOB NOT NULL CHECK (length(head) = 32), -- hash of the record's last log entry
    entry         INTEGER NOT NULL,                        -- seq of the record's last log entry
    link_version  INTEGER NOT NULL DEFAULT 0,              -- raised when a link to the record is added or removed
    trace         BLOB CHECK (length(trace) = 25)          -- trace context of the request that created the record
) STRICT;

-- Leased attempts. The token of a record's newest execution equals `records.attempt`.
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
    finish_pending    INTEGER NOT NULL,
    key             TEXT,
    abort_message   TEXT,
    retry_at        INTEGER, -- set if the worker asked for a delay and no transition reads it
    lease_duration  INTEGER, -- set if the lease call gave a length
    PRIMARY KEY (record, token)
) STRICT, WITHOUT ROWID;

-- Records, each with its newest execution.
CREATE VIEW records_with_execution AS
SELECT r.row, r.id, r.definition, r.state, r.version, r.owner, r.fields, r.attempt, r.created_at, r.updated_at, r.started_at,
    r.finished_at, r.entered_at, r.hold, r.timers, r.committed, r.payload, r.payload_bytes, r.stuck, r.head, r.entry, r.trace,
    e.token, e.worker, e.holder, e.status, e.leased_at, e.expires_at, e.started_at AS execution_started_at,
    e.finished_at AS execution_finished_at, e.abort_code, e.abort_retryable, e.finish_pending, e.key,
    e.abort_message, e.retry_at, e.lease_duration
FROM records r LEFT JOIN executions e ON e.record = r.row AND e.token = r.attempt;

-- Committed results of jobs: at most one per job, never replaced.
CREATE TABLE effects (
    record INTEGER PRIMARY KEY,
    token  INTEGER NOT NULL,
    result TEXT NOT NULL
) STRICT;

-- Unique keys and the records that hold them.
CREATE TABLE uniques (
    lifecycle INTEGER NOT NULL,
    name      INTEGER NOT NULL,
    parts     TEXT NOT NULL,
    holder    BLOB NOT NULL CHECK (length(holder) = 16),
    PRIMARY KEY (lifecycle, name, parts)
) STRICT, WITHOUT ROWID;

-- Counters of limits. `window_start` is the start of the limit's time window, or the smallest integer if it has none.
CREATE TABLE counts (
    lifecycle    INTEGER NOT NULL,
    name         INTEGER NOT NULL,
    parts        TEXT NOT NULL,
    window_start INTEGER NOT NULL,
    count        INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (lifecycle, name, parts, window_start)
) STRICT, WITHOUT ROWID;

-- Named accounts. The balance of a record's hold is in `records.hold`.
CREATE TABLE accounts (
    asset   TEXT NOT NULL,
    name    TEXT NOT NULL,
    outside INTEGER NOT NULL,
    balance INTEGER NOT NULL CHECK (balance >= 0 OR outside),
    PRIMARY KEY (asset, name)
) STRICT, WITHOUT ROWID;

-- Links between records. `field` is the field of `source` that references `target`; `lifecycle` is that of `source`.
CREATE TABLE links (
    target    INTEGER NOT NULL,
    lifecycle INTEGER NOT NULL,
    field     INTEGER NOT NULL,
    source    INTEGER NOT NULL,
    PRIMARY KEY (target, lifecycle, field, source)
) STRICT, WITHOUT ROWID;

-- Unfinished jobs of ordered concurrency keys, oldest first.
CREATE TABLE queues (
    lifecycle  INTEGER NOT NULL,
    parts      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    id         BLOB NOT NULL,
    PRIMARY KEY (lifecycle, parts, created_at, id)
) STRICT, WITHOUT ROWID;

-- Jobs that can be leased now, lowest rank first. `key` is the concurrency key: at most as many of its jobs are ready as may run.
CREATE TABLE ready (
    lifecycle  INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    record     INTEGER NOT NULL,
    ready_at   INTEGER NOT NULL,
    definition INTEGER NOT NULL,
    key        TEXT,
    PRIMARY KEY (lifecycle, rank, record)
) STRICT, WITHOUT ROWID;

-- All due waiting jobs of concurrency keys. Jobs at the front of their lane are in `ready` too.
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

-- The next time at which each record is due: a timer fires or a lease expires.
CREATE TABLE timers (
    due_at INTEGER NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (due_at, record)
) STRICT, WITHOUT ROWID;

-- Number of records by lifecycle version, owner and state.
CREATE TABLE state_counts (
    definition INTEGER NOT NULL,
    owner      TEXT NOT NULL,
    state      INTEGER NOT NULL,
    count      INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (definition, owner, state)
) STRICT, WITHOUT ROWID;

-- Payloads by hash. `bytes` is empty if the bytes are not stored here. `refs` is the number of records with this payload.
CREATE TABLE contents (
    sha256 BLOB PRIMARY KEY CHECK (length(sha256) = 32),
    refs   INTEGER NOT NULL CHECK (refs >= 0),
    bytes  BLOB NOT NULL
) STRICT;

-- Idempotency keys that were consumed: the digest of the request, and the reply that a retry gets.
CREATE TABLE idempotency_keys (
    owner  TEXT NOT NULL,
    key    TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    reply  TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

-- The log. `previous` is the seq of the same record's previous entry, so that a record's history needs no index.
CREATE TABLE history (
    seq      INTEGER PRIMARY KEY,
    record   INTEGER,
    version  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    previous INTEGER,
    text     TEXT NOT NULL,
    hash     BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

-- The last seq of the log.
CREATE TABLE log_seq (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL
) STRICT;
INSERT INTO log_seq (one, seq) VALUES (1, 0);

-- How far the log is pruned: seq and hash of the newest checkpoint, and the largest pruned seq (`floor`).
CREATE TABLE prune_state (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    checkpoint INTEGER NOT NULL,
    floor      INTEGER NOT NULL,
    head       BLOB NOT NULL CHECK (length(head) = 32)
) STRICT;
INSERT INTO prune_state (one, checkpoint, floor, head) VALUES (1, 0, 0, zeroblob(32));

-- Jobs that are not due yet, by the time at which they become ready. The next query for lease candidates moves due jobs to `ready`
-- or to the lane of their concurrency key.
CREATE TABLE delayed (
    ready_at   INTEGER NOT NULL,
    record     INTEGER NOT NULL,
    lifecycle  INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    definition INTEGER NOT NULL,
    key        TEXT,
    PRIMARY KEY (ready_at, record)
) STRICT, WITHOUT ROWID;

-- Activations of lifecycle versions, in order. Adding a version activates it; a caller can activate an older one again.
CREATE TABLE activations (
    number     INTEGER PRIMARY KEY,
    definition INTEGER NOT NULL REFERENCES definitions (number),
    at         INTEGER NOT NULL,
    actor      TEXT -- the caller; NULL if adding the version activated it
) STRICT;

-- API keys: the hash of each secret, and the owner. `roles` and `lifecycles` are JSON lists of names.
CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    hash       BLOB NOT NULL UNIQUE CHECK (length(hash) = 32), -- no two keys have the same secret
    owner      TEXT NOT NULL CHECK (owner NOT IN ('', 'engine')),
    roles      TEXT NOT NULL,
    lifecycles TEXT,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- Number of changes to the API keys.
CREATE TABLE api_keys_revision (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    revision INTEGER NOT NULL
) STRICT;
INSERT INTO api_keys_revision (one, revision) VALUES (1, 0);

-- Index for account statements: the seqs of the log entries with a transfer to or from a named account.
CREATE TABLE account_entries (
    asset TEXT NOT NULL,
    name  TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (asset, name, seq)
) STRICT, WITHOUT ROWID;

-- The clock's time that an operator last accepted after a jump, and the store's own time then; NULL before the first jump.
CREATE TABLE clock_acceptance (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    held_time  INTEGER,
    clock_time INTEGER
) STRICT;
INSERT INTO clock_acceptance (one) VALUES (1);

-- Secrets that sign deliveries, by a hash of the owner. The previous secret signs, too, until `previous_until`.
CREATE TABLE webhook_secrets (
    owner_digest   BLOB PRIMARY KEY CHECK (length(owner_digest) = 32),
    current        BLOB NOT NULL CHECK (length(current) = 32),
    previous       BLOB CHECK (length(previous) = 32),
    previous_until INTEGER CHECK ((previous_until IS NULL) = (previous IS NULL))
) STRICT, WITHOUT ROWID;

-- Workers that asked for jobs recently, by a hash of holder and worker name.
CREATE TABLE workers (
    digest     BLOB PRIMARY KEY CHECK (length(digest) = 32),
    holder     TEXT NOT NULL,
    worker     TEXT NOT NULL,
    lifecycles TEXT NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
