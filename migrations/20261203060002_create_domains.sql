-- Domain packs that people add, each in numbered versions that never change; those that ship are in the program.

CREATE TABLE domains (
    id          text NOT NULL CHECK (id ~ '^[a-z][a-z0-9_]{0,63}$'),
    version     integer NOT NULL CHECK (version > 0),
    pack        jsonb NOT NULL,
    state       text NOT NULL CHECK (state IN ('draft','active','retired')),
    created_by  text NOT NULL,                              -- name of the API key
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id, version)
);
CREATE UNIQUE INDEX one_version_of_a_domain_is_active ON domains (id) WHERE state = 'active';

CREATE FUNCTION refuse_change_of_domain_pack() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.pack IS DISTINCT FROM OLD.pack OR NEW.version <> OLD.version OR NEW.id <> OLD.id THEN
        RAISE EXCEPTION 'version % of domain % never changes', OLD.version, OLD.id
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER domain_packs_never_change BEFORE UPDATE ON domains
    FOR EACH ROW EXECUTE FUNCTION refuse_change_of_domain_pack();

-- The smallest hashes of a dialogue's runs of five words: likely likenesses are found without reading every record.
ALTER TABLE dialogues ADD COLUMN signature bigint[] NOT NULL DEFAULT '{}';
CREATE INDEX dialogues_by_signature ON dialogues USING gin (signature);
