-- A session may have a puppeteer: facts it may tell the agent, and a record of every decision it took.

CREATE TABLE knowledge_bases (
    id         uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    facts      jsonb NOT NULL,                      -- list of {id, text, tags}
    created_at timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE sessions ADD COLUMN options jsonb NOT NULL DEFAULT '{}';    -- SessionOptions: pace, puppeteer, ..

CREATE TABLE puppeteer_decisions (
    session_id   uuid NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq          bigint GENERATED ALWAYS AS IDENTITY,
    frame        bigint NOT NULL,
    mode         text NOT NULL CHECK (mode IN ('llm','keywords','scheduled')),
    outcome      text NOT NULL CHECK (outcome IN ('injected','nothing','duplicate','capped','refused','failed')),
    injection_id text,
    facts        text[] NOT NULL,
    reason       text NOT NULL,
    latency_ms   bigint NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, seq)
);

CREATE VIEW v_puppeteer_decisions AS
    SELECT session_id, frame, mode, outcome, injection_id, latency_ms, created_at FROM puppeteer_decisions;
