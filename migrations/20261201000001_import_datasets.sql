-- Datasets made elsewhere, and published datasets that never change.

ALTER TABLE jobs DROP CONSTRAINT jobs_kind_check;
ALTER TABLE jobs ADD CONSTRAINT jobs_kind_check
    CHECK (kind IN ('generate','render','align','assemble','import','train','evaluate','compare'));

ALTER TABLE datasets ADD COLUMN import jsonb;           -- what to import and how; NULL for generated datasets

CREATE FUNCTION refuse_change_of_published_dataset() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.published_at IS NOT NULL AND NEW IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'dataset % is published and never changes', OLD.name
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER datasets_are_immutable_once_published BEFORE UPDATE ON datasets
    FOR EACH ROW EXECUTE FUNCTION refuse_change_of_published_dataset();
