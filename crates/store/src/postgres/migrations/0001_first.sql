-- Times are microseconds since 1970-01-01T00:00:00Z. Tables reference records by row number; callers use record ids.
-- All tables are in the schema `onceward`, so that the database can hold other schemas.

-- Numbers that keys use instead of names: names of lifecycles, states, fields, unique keys and limits.
CREATE TABLE onceward.names (
    id   INTEGER PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE
);

-- Sets of lifecycle files, as one call added them. JSON: pairs of name and text.
CREATE TABLE onceward.sources (
    id    INTEGER PRIMARY KEY,
    files TEXT NOT NULL
);

-- Every version of every lifecycle, numbered in the order in which they were added.
CREATE TABLE onceward.definitions (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL,
    hash   TEXT COLLATE "C" NOT NULL UNIQUE,
    source INTEGER NOT NULL REFERENCES onceward.sources (id)
);

CREATE SEQUENCE onceward.record_rows;
CREATE SEQUENCE onceward.batch_numbers;

-- A job's row changes two or three times. The fillfactor leaves free space on each page, so that these updates need no index entry.
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
    head          BYTEA NOT NULL CHECK (octet_length(head) = 32), -- hash of the record's last log entry
    entry         BIGINT NOT NULL,                                -- `entry_id` of the record's last log entry
    link_version  BIGINT NOT NULL DEFAULT 0,                      -- raised when a link to the record is added or removed
    trace         BYTEA CHECK (octet_length(trace) = 25)          -- trace context of the request that created the record
) WITH (fillfactor = 45);

-- Leased attempts. The token of a record's newest execution equals `records.attempt`.
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
    finish_pending    BOOLEAN NOT NULL,
    key             TEXT,
    abort_message   TEXT,
    retry_at        BIGINT, -- set if the worker asked for a delay and no transition reads it
    lease_duration  BIGINT, -- set if the lease call gave a length
    PRIMARY KEY (record, token)
) WITH (fillfactor = 45);

-- Records, each with its newest execution.
CREATE VIEW onceward.records_with_execution AS
SELECT r.row, r.id, r.definition, r.state, r.version, r.owner, r.fields, r.attempt, r.created_at, r.updated_at, r.started_at,
    r.finished_at, r.entered_at, r.hold, r.timers, r.committed, r.payload, r.payload_bytes, r.stuck, r.head, r.entry, r.trace,
    e.token, e.worker, e.holder, e.status, e.leased_at, e.expires_at, e.started_at AS execution_started_at,
    e.finished_at AS execution_finished_at, e.abort_code, e.abort_retryable, e.finish_pending, e.key,
    e.abort_message, e.retry_at, e.lease_duration
FROM onceward.records r LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt;

-- Committed results of jobs: at most one per job, never replaced.
CREATE TABLE onceward.effects (
    record BIGINT PRIMARY KEY,
    token  BIGINT NOT NULL,
    result TEXT NOT NULL
);

-- Unique keys and the records that hold them. Index entries are limited in size: for a long key, `parts` is a hash and `full_parts` has
-- the text.
CREATE TABLE onceward.uniques (
    lifecycle  INTEGER NOT NULL,
    name       INTEGER NOT NULL,
    parts      TEXT COLLATE "C" NOT NULL,
    holder     UUID NOT NULL,
    full_parts TEXT,
    PRIMARY KEY (lifecycle, name, parts)
);

-- Counters of limits. `window_start` is the start of the limit's time window, or the smallest BIGINT if it has none. A transaction
-- that changes which jobs of a concurrency key wait locks the key's counter of running jobs, so each key has one, even at zero.
-- `full_parts` is as in `uniques`.
CREATE TABLE onceward.counts (
    lifecycle    INTEGER NOT NULL,
    name         INTEGER NOT NULL,
    parts        TEXT COLLATE "C" NOT NULL,
    window_start BIGINT NOT NULL,
    count        BIGINT NOT NULL CHECK (count >= 0),
    full_parts   TEXT,
    PRIMARY KEY (lifecycle, name, parts, window_start)
) WITH (fillfactor = 50);

-- Named accounts. The balance of a record's hold is in `records.hold`.
CREATE TABLE onceward.accounts (
    asset   TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    outside BOOLEAN NOT NULL,
    balance BIGINT NOT NULL CHECK (balance >= 0 OR outside),
    PRIMARY KEY (asset, name)
) WITH (fillfactor = 50);

-- Links between records. `field` is the field of `source` that references `target`; `lifecycle` is that of `source`.
CREATE TABLE onceward.links (
    target    BIGINT NOT NULL,
    lifecycle INTEGER NOT NULL,
    field     INTEGER NOT NULL,
    source    BIGINT NOT NULL,
    PRIMARY KEY (target, lifecycle, field, source)
);

-- Unfinished jobs of ordered concurrency keys, oldest first.
CREATE TABLE onceward.queues (
    lifecycle  INTEGER NOT NULL,
    parts      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    id         UUID NOT NULL,
    PRIMARY KEY (lifecycle, parts, created_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Jobs that can be leased now, lowest rank first. `key` is the concurrency key: at most as many of its jobs are ready as may run.
CREATE TABLE onceward.ready (
    lifecycle  INTEGER NOT NULL,
    rank       BIGINT NOT NULL,
    record     BIGINT NOT NULL,
    ready_at   BIGINT NOT NULL,
    definition INTEGER NOT NULL,
    key        TEXT COLLATE "C",
    PRIMARY KEY (lifecycle, rank, record)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- All due waiting jobs of concurrency keys. Jobs at the front of their lane are in `ready` too.
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

-- The next time at which each record is due: a timer fires or a lease expires.
CREATE TABLE onceward.timers (
    due_at BIGINT NOT NULL,
    record BIGINT NOT NULL,
    PRIMARY KEY (due_at, record)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Number of records by lifecycle version, owner and state.
CREATE TABLE onceward.state_counts (
    definition INTEGER NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    state      INTEGER NOT NULL,
    count      BIGINT NOT NULL CHECK (count >= 0),
    PRIMARY KEY (definition, owner, state)
) WITH (fillfactor = 50);

-- Payloads by hash. `bytes` is empty if the bytes are not stored here. `refs` is the number of records with this payload.
CREATE TABLE onceward.contents (
    sha256 BYTEA PRIMARY KEY CHECK (octet_length(sha256) = 32),
    refs   BIGINT NOT NULL CHECK (refs >= 0),
    bytes  BYTEA NOT NULL
);

-- Idempotency keys that were consumed: the digest of the request, and the reply that a retry gets.
CREATE TABLE onceward.idempotency_keys (
    owner  TEXT COLLATE "C" NOT NULL,
    key    TEXT COLLATE "C" NOT NULL,
    digest BYTEA NOT NULL CHECK (octet_length(digest) = 32),
    reply  TEXT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (owner, key)
);

-- The log. `entry_id` is the batch number times 2^20 plus the entry's index in the batch. `previous` is the `entry_id` of the same
-- record's previous entry, so that a record's history needs no index.
CREATE TABLE onceward.history (
    entry_id BIGINT PRIMARY KEY,
    record   BIGINT,
    version  BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    previous BIGINT,
    text     TEXT NOT NULL,
    hash     BYTEA NOT NULL CHECK (octet_length(hash) = 32)
);

-- Batches: the entries of a batch have the seqs from `first` to `last`. A save inserts this row last, while it locks the row of
-- `log_end`, so that the log has the order of the commits.
CREATE TABLE onceward.batches (
    last  BIGINT PRIMARY KEY,
    first BIGINT NOT NULL CHECK (first <= last),
    batch BIGINT NOT NULL UNIQUE
);

-- One row that is only locked, never updated, so that commits leave no dead rows.
CREATE TABLE onceward.log_end (
    one INTEGER PRIMARY KEY CHECK (one = 1)
);
INSERT INTO onceward.log_end (one) VALUES (1);

-- How far the log is pruned: seq and hash of the newest checkpoint, and the largest pruned seq (`floor`). Pruning locks the row.
CREATE TABLE onceward.prune_state (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    checkpoint  BIGINT NOT NULL,
    floor       BIGINT NOT NULL,
    head        BYTEA NOT NULL CHECK (octet_length(head) = 32),
    last_run_at BIGINT NOT NULL DEFAULT 0 -- when a process last started a retention run, by the database's clock
);
INSERT INTO onceward.prune_state (one, checkpoint, floor, head) VALUES (1, 0, 0, decode(repeat('00', 32), 'hex'));

-- Calls that other programs insert by SQL. The engine executes each once per owner and idempotency key. The sender writes the
-- columns up to `sent_at`, the engine writes the others. See docs/postgres.md.
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
    subject     UUID,    -- the record that the call created or changed
    status      INTEGER, -- of a refusal, with `code` and `reason`
    code        TEXT,
    reason      TEXT,
    UNIQUE (owner, key),
    CHECK (CASE WHEN event = 'create' THEN lifecycle IS NOT NULL ELSE record IS NOT NULL END)
);
CREATE INDEX inbox_waiting ON onceward.inbox (number) WHERE answered_at IS NULL;

-- Jobs that are not due yet, by the time at which they become ready. The next query for lease candidates moves due jobs to `ready`
-- or to the lane of their concurrency key. To move a job with a key, it locks the key's counter of running jobs.
CREATE TABLE onceward.delayed (
    ready_at   BIGINT NOT NULL,
    record     BIGINT NOT NULL,
    lifecycle  INTEGER NOT NULL,
    rank       BIGINT NOT NULL,
    definition INTEGER NOT NULL,
    key        TEXT COLLATE "C",
    PRIMARY KEY (ready_at, record)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Activations of lifecycle versions, in order. Adding a version activates it; a caller can activate an older one again.
CREATE TABLE onceward.activations (
    number     INTEGER PRIMARY KEY,
    definition INTEGER NOT NULL REFERENCES onceward.definitions (number),
    at         BIGINT NOT NULL,
    actor      TEXT -- the caller; NULL if adding the version activated it
);

-- API keys: the hash of each secret, and the owner. `roles` and `lifecycles` are JSON lists of names.
CREATE TABLE onceward.api_keys (
    id         TEXT COLLATE "C" PRIMARY KEY,
    hash       BYTEA NOT NULL UNIQUE CHECK (octet_length(hash) = 32), -- no two keys have the same secret
    owner      TEXT NOT NULL CHECK (owner NOT IN ('', 'engine')),
    roles      TEXT NOT NULL,
    lifecycles TEXT,
    name       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

-- Number of changes to the API keys. A change locks the row.
CREATE TABLE onceward.api_keys_revision (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    revision BIGINT NOT NULL
);
INSERT INTO onceward.api_keys_revision (one, revision) VALUES (1, 0);

-- Index for account statements: the seqs of the log entries with a transfer to or from a named account.
CREATE TABLE onceward.account_entries (
    asset TEXT COLLATE "C" NOT NULL,
    name  TEXT COLLATE "C" NOT NULL,
    seq   BIGINT NOT NULL,
    PRIMARY KEY (asset, name, seq)
);

-- The clock's time that an operator last accepted after a jump, and the store's own time then; NULL before the first jump.
CREATE TABLE onceward.clock_acceptance (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    held_time  BIGINT,
    clock_time BIGINT
);
INSERT INTO onceward.clock_acceptance (one) VALUES (1);

-- Secrets that sign deliveries, by a hash of the owner. The previous secret signs, too, until `previous_until`.
CREATE TABLE onceward.webhook_secrets (
    owner_digest   BYTEA PRIMARY KEY CHECK (octet_length(owner_digest) = 32),
    current        BYTEA NOT NULL CHECK (octet_length(current) = 32),
    previous       BYTEA CHECK (octet_length(previous) = 32),
    previous_until BIGINT CHECK ((previous_until IS NULL) = (previous IS NULL))
);

-- Workers that asked for jobs recently, by a hash of holder and worker name.
CREATE TABLE onceward.workers (
    digest     BYTEA PRIMARY KEY CHECK (octet_length(digest) = 32),
    holder     TEXT NOT NULL,
    worker     TEXT NOT NULL,
    lifecycles TEXT NOT NULL,
    seen_at    BIGINT NOT NULL
) WITH (fillfactor = 50);

-- Number of starts of each named server instance. A start ends the leases of the instance's earlier starts.
CREATE TABLE onceward.instances (
    name   TEXT COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9._-]{1,64}$'),
    number BIGINT NOT NULL
);
