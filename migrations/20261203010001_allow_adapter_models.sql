-- An adapter can be served beside its base, without a merged copy of the whole model: a third kind of model, whose folder
-- holds the adapter alone and whose base is another row.
ALTER TABLE models DROP CONSTRAINT models_kind_check;
ALTER TABLE models ADD CONSTRAINT models_kind_check CHECK (kind IN ('base', 'merged', 'adapter'));
ALTER TABLE models ADD CONSTRAINT models_adapter_has_base CHECK (kind <> 'adapter' OR base_id IS NOT NULL);
