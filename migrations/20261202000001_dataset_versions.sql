-- A name holds numbered versions of a dataset; each is a row of its own and is never changed once published.

ALTER TABLE datasets DROP CONSTRAINT datasets_name_key;
ALTER TABLE datasets ADD COLUMN version integer NOT NULL DEFAULT 1 CHECK (version > 0);
ALTER TABLE datasets ALTER COLUMN version DROP DEFAULT;     -- always set by the trigger below
ALTER TABLE datasets ADD CONSTRAINT datasets_name_version_key UNIQUE (name, version);

CREATE FUNCTION number_dataset_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Two inserts of one name wait for each other; other names are not concerned.
    PERFORM pg_advisory_xact_lock(hashtextextended('dataset version of ' || NEW.name, 0));
    SELECT coalesce(max(version), 0) + 1 INTO NEW.version FROM datasets WHERE name = NEW.name;
    RETURN NEW;
END $$;
CREATE TRIGGER datasets_are_numbered BEFORE INSERT ON datasets
    FOR EACH ROW EXECUTE FUNCTION number_dataset_version();
