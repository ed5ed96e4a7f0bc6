-- Voices that were uploaded: what serving reads, and that the speaker agreed.

ALTER TABLE voices
    ADD COLUMN form            text NOT NULL DEFAULT 'samples'   -- of the prompt: a clip for any codec, or one model's inputs
        CHECK (form IN ('samples','embeddings')),
    ADD COLUMN prompt_artifact text,                              -- safetensors; NULL = made from the wav when needed
    ADD COLUMN prompt_sha256   text,
    ADD COLUMN dim             integer,                           -- width of the model that embeddings are for
    ADD COLUMN consented_at    timestamptz,                       -- NULL for voices of engines
    ADD CONSTRAINT voices_prompt_is_whole CHECK (
        (prompt_artifact IS NULL) = (prompt_sha256 IS NULL)
        AND (form = 'embeddings') = (dim IS NOT NULL)
        AND (form = 'samples' OR prompt_artifact IS NOT NULL));
