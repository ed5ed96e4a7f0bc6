-- Every call of a writing model is written down before it is made: a worker that dies loses no answer that was paid for,
-- and what a dataset may cost is a limit for all workers together.
CREATE TABLE dialogue_calls (
    dataset_id    uuid NOT NULL REFERENCES datasets (id) ON DELETE CASCADE,
    row           integer NOT NULL,
    attempt       integer NOT NULL CHECK (attempt > 0),  -- counted by row
    state         text NOT NULL CHECK (state IN ('in_flight','paid','failed','uncertain')),
    cost_microusd bigint NOT NULL CHECK (cost_microusd >= 0), -- the worst case until the end is known
    answer        jsonb,                                 -- of a paid call, with its usage
    error         text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    PRIMARY KEY (dataset_id, row, attempt),
    CHECK ((state = 'paid') = (answer IS NOT NULL))
);
