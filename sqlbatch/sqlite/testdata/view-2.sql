CREATE VIEW "main"."chanq_orders__messages" AS
SELECT CASE WHEN lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'leased' WHEN due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'scheduled' ELSE 'ready' END AS state,
  lower(hex(id)) AS id, priority, strftime('%Y-%m-%d %H:%M:%f', due_at / 1000.0, 'unixepoch') AS due_at, CASE WHEN leased_by IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', lease_until / 1000.0, 'unixepoch') END AS lease_until,
  strftime('%Y-%m-%d %H:%M:%f', enqueued_at / 1000.0, 'unixepoch') AS enqueued_at, strftime('%Y-%m-%d %H:%M:%f', expires_at / 1000.0, 'unixepoch') AS expires_at, NULL AS ended_at, attempts, CAST(dedup_key AS TEXT) AS dedup_key, type,
  CAST(substr(headers, 1, 4000) AS TEXT) AS headers, CAST(substr(body, 1, 4000) AS TEXT) AS body, CASE WHEN typeof(body) = 'blob' THEN length(body) ELSE length(CAST(body AS BLOB)) END AS bytes, last_error
FROM "chanq_orders" WHERE rowid IN (SELECT rowid FROM "chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 ORDER BY due_at, id LIMIT 1000)
UNION ALL
SELECT CASE WHEN lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'leased' WHEN due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'scheduled' ELSE 'ready' END AS state,
  lower(hex(id)) AS id, priority, strftime('%Y-%m-%d %H:%M:%f', due_at / 1000.0, 'unixepoch') AS due_at, CASE WHEN leased_by IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', lease_until / 1000.0, 'unixepoch') END AS lease_until,
  strftime('%Y-%m-%d %H:%M:%f', enqueued_at / 1000.0, 'unixepoch') AS enqueued_at, strftime('%Y-%m-%d %H:%M:%f', expires_at / 1000.0, 'unixepoch') AS expires_at, NULL AS ended_at, attempts, CAST(dedup_key AS TEXT) AS dedup_key, type,
  CAST(substr(headers, 1, 4000) AS TEXT) AS headers, CAST(substr(body, 1, 4000) AS TEXT) AS body, CASE WHEN typeof(body) = 'blob' THEN length(body) ELSE length(CAST(body AS BLOB)) END AS bytes, last_error
FROM "chanq_orders" WHERE rowid IN (SELECT rowid FROM "chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 ORDER BY due_at, id LIMIT 1000)
UNION ALL
SELECT CASE WHEN lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'leased' WHEN due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'scheduled' ELSE 'ready' END AS state,
  lower(hex(id)) AS id, priority, strftime('%Y-%m-%d %H:%M:%f', due_at / 1000.0, 'unixepoch') AS due_at, CASE WHEN leased_by IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', lease_until / 1000.0, 'unixepoch') END AS lease_until,
  strftime('%Y-%m-%d %H:%M:%f', enqueued_at / 1000.0, 'unixepoch') AS enqueued_at, strftime('%Y-%m-%d %H:%M:%f', expires_at / 1000.0, 'unixepoch') AS expires_at, NULL AS ended_at, attempts, CAST(dedup_key AS TEXT) AS dedup_key, type,
  CAST(substr(headers, 1, 4000) AS TEXT) AS headers, CAST(substr(body, 1, 4000) AS TEXT) AS body, CASE WHEN typeof(body) = 'blob' THEN length(body) ELSE length(CAST(body AS BLOB)) END AS bytes, last_error
FROM "chanq_orders" WHERE rowid IN (SELECT rowid FROM "chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 ORDER BY due_at, id LIMIT 1000)
UNION ALL
SELECT CASE WHEN lease_until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'leased' WHEN due_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) THEN 'scheduled' ELSE 'ready' END AS state,
  lower(hex(id)) AS id, priority, strftime('%Y-%m-%d %H:%M:%f', due_at / 1000.0, 'unixepoch') AS due_at, CASE WHEN leased_by IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', lease_until / 1000.0, 'unixepoch') END AS lease_until,
  strftime('%Y-%m-%d %H:%M:%f', enqueued_at / 1000.0, 'unixepoch') AS enqueued_at, strftime('%Y-%m-%d %H:%M:%f', expires_at / 1000.0, 'unixepoch') AS expires_at, NULL AS ended_at, attempts, CAST(dedup_key AS TEXT) AS dedup_key, type,
  CAST(substr(headers, 1, 4000) AS TEXT) AS headers, CAST(substr(body, 1, 4000) AS TEXT) AS body, CASE WHEN typeof(body) = 'blob' THEN length(body) ELSE length(CAST(body AS BLOB)) END AS bytes, last_error
FROM "chanq_orders" WHERE rowid IN (SELECT rowid FROM "chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 ORDER BY due_at, id LIMIT 1000)
UNION ALL
SELECT 'dead', lower(hex(id)), priority, NULL, NULL, strftime('%Y-%m-%d %H:%M:%f', enqueued_at / 1000.0, 'unixepoch'), NULL, strftime('%Y-%m-%d %H:%M:%f', ended_at / 1000.0, 'unixepoch'), attempts, CAST(dedup_key AS TEXT), type,
  CAST(substr(headers, 1, 4000) AS TEXT), CAST(substr(body, 1, 4000) AS TEXT), CASE WHEN typeof(body) = 'blob' THEN length(body) ELSE length(CAST(body AS BLOB)) END, last_error
FROM "chanq_orders__dead" WHERE rowid IN (SELECT rowid FROM "chanq_orders__dead" ORDER BY ended_at DESC, id DESC LIMIT 1000);
