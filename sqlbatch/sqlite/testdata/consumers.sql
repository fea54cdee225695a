SELECT id, name, host, process, since, until FROM "main"."chanq__consumers" WHERE queue = 'orders' AND until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY since, id;
