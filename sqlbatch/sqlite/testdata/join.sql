DELETE FROM "main"."chanq__consumers" WHERE until < CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) - 86400000;

INSERT INTO "main"."chanq__consumers" (id, queue, name, host, process, since, until, heard_at) VALUES (?1, 'orders', ?2, ?3, ?4, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) + ?5, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
ON CONFLICT (id) DO UPDATE SET until = max(until, excluded.until), heard_at = excluded.heard_at;
