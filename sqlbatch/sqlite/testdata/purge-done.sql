DELETE FROM "main"."chanq_orders__done" WHERE rowid IN (SELECT rowid FROM "main"."chanq_orders__done" WHERE (ended_at, id) > (?2, ?3) AND ended_at < ?4 ORDER BY ended_at, id LIMIT ?1 + 0)
RETURNING id, ended_at;
