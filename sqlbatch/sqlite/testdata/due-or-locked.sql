SELECT min(due) FROM (
    SELECT * FROM (SELECT due_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 2 AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT due_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 1 AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT due_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = 0 AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT due_at - CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS due FROM "main"."chanq_orders" INDEXED BY "ix_chanq_orders__due" WHERE priority = -1 AND lease_until <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY due_at, id LIMIT 1)
) WHERE (SELECT NOT paused FROM "main"."chanq__queues" WHERE name = 'orders');
