DROP TABLE model_records;
