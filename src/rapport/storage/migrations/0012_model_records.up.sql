-- What a model has been seen to do: it decides what is asked of the model (ADR 63).

CREATE TABLE model_records (
    model       text NOT NULL,                  -- as in RAPPORT_MODEL
    server      text NOT NULL,                  -- host and port; empty for the provider's own
    facts       jsonb NOT NULL,                 -- counts, see agents/model_record.py
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (model, server)
);
