-- Dialogues are looked at, corrected and approved by people before they are spoken, and are found again by what they say.

ALTER TABLE dialogues
    ADD COLUMN status     text NOT NULL DEFAULT 'valid' CHECK (status IN ('valid','invalid','approved','rejected')),
    ADD COLUMN faults     jsonb NOT NULL DEFAULT '[]',       -- rules that the record breaks; empty when valid or approved
    ADD COLUMN review     jsonb,                             -- who decided, why and when
    ADD COLUMN attempts   integer NOT NULL DEFAULT 1 CHECK (attempts > 0),
    ADD COLUMN revision   bigint NOT NULL DEFAULT 1,         -- counted up with every change by a person
    ADD COLUMN search     tsvector GENERATED ALWAYS AS (jsonb_to_tsvector('english', record, '["string"]')) STORED,
    ADD CONSTRAINT built_dialogues_have_no_faults CHECK (status NOT IN ('valid','approved') OR faults = '[]'::jsonb),
    ADD CONSTRAINT decided_dialogues_have_a_review CHECK ((status IN ('approved','rejected')) = (review IS NOT NULL));

CREATE INDEX dialogues_are_searched ON dialogues USING gin (search);
CREATE INDEX dialogues_by_values ON dialogues USING gin ((record -> 'seed') jsonb_path_ops);
CREATE INDEX dialogues_by_status ON dialogues (dataset_id, status);

-- Set when the dialogues of a dataset that waits for approval go on to be rendered; from then on they do not change.
ALTER TABLE datasets ADD COLUMN released_at timestamptz;
