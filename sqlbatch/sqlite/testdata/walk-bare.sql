SELECT id, ended_at, type FROM "main"."chanq_orders__dead" WHERE cause = ?5 AND fingerprint IS ?6 AND (ended_at, id) > (?2, ?3) AND ended_at < ?4 ORDER BY ended_at, id LIMIT ?1;
