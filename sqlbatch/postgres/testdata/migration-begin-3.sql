DO $$
BEGIN
  IF current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII') THEN
    RAISE EXCEPTION 'chanq: this database has the encoding %, and chanq needs UTF8', current_setting('server_encoding')
      USING ERRCODE = 'feature_not_supported';
  END IF;
END
$$;
