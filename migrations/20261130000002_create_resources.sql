-- The nouns of the API. States of datasets, runs, evaluations and comparisons are those of their jobs, never stored twice.

CREATE TABLE datasets (
    id            uuid PRIMARY KEY,
    name          text NOT NULL UNIQUE,
    spec          jsonb NOT NULL,
    summary       jsonb,
    published_at  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    CHECK ((summary IS NULL) = (published_at IS NULL))
);

CREATE TABLE dialogues (
    id          uuid PRIMARY KEY,
    dataset_id  uuid NOT NULL REFERENCES datasets (id) ON DELETE CASCADE,
    row         integer NOT NULL,
    record_id   text NOT NULL,
    record      jsonb NOT NULL,
    render      jsonb,                                   -- keys and facts of the mono rendering
    alignment   jsonb,                                   -- keys and facts of the stereo wav and sidecar
    split       text CHECK (split IN ('train','eval','rejected')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (dataset_id, row),
    UNIQUE (dataset_id, record_id)
);

CREATE TABLE models (
    id          uuid PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    kind        text NOT NULL CHECK (kind IN ('base','merged')),
    prefix      text NOT NULL,                           -- artifact folder
    files       jsonb NOT NULL,
    base_id     uuid REFERENCES models (id),
    run_id      uuid,
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE runs (
    id          uuid PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    dataset_id  uuid NOT NULL REFERENCES datasets (id),
    base_id     uuid NOT NULL REFERENCES models (id),
    spec        jsonb NOT NULL,
    summary     jsonb,
    created_at  timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE models ADD FOREIGN KEY (run_id) REFERENCES runs (id);

CREATE TABLE run_metrics (
    run_id      uuid NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name        text NOT NULL,
    step        integer NOT NULL,
    value       double precision NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, name, step)
);

CREATE TABLE checkpoints (
    id          uuid PRIMARY KEY,
    run_id      uuid NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    step        integer NOT NULL,
    prefix      text NOT NULL,                           -- artifact folder
    files       jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (run_id, step)
);

CREATE TABLE voices (
    id          uuid PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    artifact    text NOT NULL,
    sha256      text NOT NULL,
    duration_ms bigint NOT NULL,
    source      text NOT NULL,                           -- engine that made it, or 'upload'
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE sessions (
    id                uuid PRIMARY KEY,
    model_id          uuid NOT NULL REFERENCES models (id),
    voice             text,
    text_prompt       text NOT NULL,
    sampling          jsonb NOT NULL,
    state             text NOT NULL CHECK (state IN ('created','live','ended')),
    ticket_sha256     bytea NOT NULL,
    ticket_expires_at timestamptz NOT NULL,
    stats             jsonb,
    close_reason      text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    started_at        timestamptz,
    ended_at          timestamptz
);

CREATE TABLE evaluations (
    id          uuid PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    dataset_id  uuid NOT NULL REFERENCES datasets (id),
    model_id    uuid NOT NULL REFERENCES models (id),
    spec        jsonb NOT NULL,
    summary     jsonb,
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE evaluation_scores (
    evaluation_id uuid NOT NULL REFERENCES evaluations (id) ON DELETE CASCADE,
    dialogue      text NOT NULL,
    metrics       jsonb NOT NULL,
    recording     text,                                  -- artifact of the stereo recording
    PRIMARY KEY (evaluation_id, dialogue)
);

CREATE TABLE comparisons (
    id          uuid PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    a_id        uuid NOT NULL REFERENCES evaluations (id),
    b_id        uuid NOT NULL REFERENCES evaluations (id),
    summary     jsonb,
    report_json text,
    report_html text,
    created_at  timestamptz NOT NULL DEFAULT now()
);

-- Read-only views for dashboards: part of the public contract.
CREATE VIEW v_jobs AS
    SELECT id, kind, state, subject, attempt, created_at, started_at, finished_at, error_code,
           extract(epoch FROM started_at - created_at)::double precision AS queued_s,
           extract(epoch FROM finished_at - started_at)::double precision AS ran_s
    FROM jobs;
CREATE VIEW v_queue_depth AS
    SELECT kind, count(*) FILTER (WHERE pending_needs = 0) AS ready, count(*) FILTER (WHERE pending_needs > 0) AS blocked
    FROM jobs WHERE state = 'queued' GROUP BY kind;
CREATE VIEW v_run_metrics AS
    SELECT r.name AS run, m.run_id, m.name AS metric, m.step, m.value, m.recorded_at
    FROM run_metrics m JOIN runs r ON r.id = m.run_id;
CREATE VIEW v_dialogues AS
    SELECT d.id, s.name AS dataset, d.row, d.record_id, d.split,
           (d.alignment ->> 'duration_ms')::bigint AS duration_ms, jsonb_array_length(d.record -> 'turns') AS turns
    FROM dialogues d JOIN datasets s ON s.id = d.dataset_id;
CREATE VIEW v_sessions AS
    SELECT id, model_id, state, created_at, started_at, ended_at, close_reason, (stats ->> 'frames')::bigint AS frames,
           (stats ->> 'frame_ms_p50')::double precision AS frame_ms_p50, (stats ->> 'frame_ms_p99')::double precision AS frame_ms_p99
    FROM sessions;
