-- A session whose socket was lost may be taken up again with its ticket until this time; then the sweeper ends it.

ALTER TABLE sessions ADD COLUMN resume_until timestamptz;
