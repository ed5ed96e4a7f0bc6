-- Jobs, their events and the outbox: Postgres is the truth, the broker only rings.

CREATE TABLE jobs (
    id              uuid PRIMARY KEY,
    kind            text NOT NULL CHECK (kind IN ('generate','render','align','assemble','train','evaluate','compare')),
    state           text NOT NULL CHECK (state IN ('queued','running','cancelling','pausing','paused','succeeded','failed','cancelled')),
    spec            jsonb NOT NULL,
    subject         text NOT NULL,                       -- typed id of the resource the job works for
    attempt         integer NOT NULL DEFAULT 0,          -- fencing token of the current claim
    max_attempts    integer NOT NULL CHECK (max_attempts > 0),
    pending_needs   integer NOT NULL DEFAULT 0 CHECK (pending_needs >= 0),
    lease_owner     text,
    lease_until     timestamptz,
    run_at          timestamptz NOT NULL DEFAULT now(),  -- not before; back-off of retries
    rung_at         timestamptz,                         -- last time a doorbell went into the outbox
    progress        jsonb,
    result          jsonb,
    error_code      text,
    error_detail    text,
    traceparent     text,
    last_seq        bigint NOT NULL DEFAULT 0,           -- newest event
    created_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    finished_at     timestamptz,
    CHECK ((state IN ('running','cancelling','pausing')) = (lease_until IS NOT NULL)),
    CHECK ((state IN ('succeeded','failed','cancelled')) = (finished_at IS NOT NULL))
);
CREATE INDEX jobs_claimable ON jobs (kind, run_at) WHERE state = 'queued' AND pending_needs = 0;
CREATE INDEX jobs_leases ON jobs (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX jobs_subject ON jobs (subject);

CREATE TABLE job_needs (
    job_id  uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    needs   uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    PRIMARY KEY (job_id, needs)
);
CREATE INDEX job_needs_needs ON job_needs (needs);

CREATE TABLE job_events (
    job_id      uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    seq         bigint NOT NULL,
    kind        text NOT NULL,
    data        jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, seq)
);

CREATE TABLE outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    exchange    text NOT NULL CHECK (exchange IN ('jobs','events')),
    routing_key text NOT NULL,
    payload     jsonb NOT NULL,                          -- ids only
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE idempotency_keys (
    scope       text NOT NULL,                           -- API key, method and path
    key         text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    fingerprint bytea NOT NULL,                          -- SHA-256 of the request body
    status      integer NOT NULL,
    location    text,
    body        jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

CREATE TABLE api_keys (
    id            uuid PRIMARY KEY,
    name          text NOT NULL,
    key_id        text NOT NULL UNIQUE,                  -- public part of the key
    secret_sha256 bytea NOT NULL,
    scopes        text[] NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    revoked_at    timestamptz,
    last_used_at  timestamptz
);
