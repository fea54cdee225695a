SELECT coalesce(min((
  SELECT q.seq FROM "main"."chanq_orders" AS q INDEXED BY "ix_chanq_orders_due" WHERE q.slot = s.slot AND q.seq > ?1 ORDER BY q.seq LIMIT 1 OFFSET ?2 - 1)), 9223372036854775807)
FROM "main"."chanq_slots" AS s WHERE s.queue = 'orders';
