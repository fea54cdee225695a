-- @limit bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @first TABLE (slot smallint NOT NULL, order_key varbinary(200) NOT NULL, seq bigint NOT NULL, id binary(16) NOT NULL,
    waits int NULL, enqueued_at datetime2(3) NOT NULL, PRIMARY KEY CLUSTERED (slot, order_key, seq, id));
DECLARE @keys TABLE (slot smallint NOT NULL, order_key varbinary(200) NOT NULL, n bigint NOT NULL, PRIMARY KEY CLUSTERED (slot, order_key));
INSERT INTO @first (slot, order_key, seq, id, waits, enqueued_at)
SELECT f.slot, CASE WHEN f.order_key IS NULL THEN 0x ELSE f.order_key END, f.seq, f.id, CASE WHEN f.due_at > @now OR f.lease_until > @now THEN 1 END, f.enqueued_at
FROM (
    SELECT TOP (@limit) q.slot, q.order_key, q.seq, q.id, q.due_at, q.lease_until, q.enqueued_at
    FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
    WHERE q.seq > 0
    ORDER BY q.seq) AS f
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
INSERT INTO @keys (slot, order_key, n)
SELECT r.slot, r.order_key, c.n
FROM @first AS r
CROSS APPLY (SELECT COUNT_BIG(*) AS n FROM @first AS e WHERE e.slot = r.slot AND e.order_key = r.order_key) AS c
WHERE r.order_key > 0x AND NOT EXISTS (
    SELECT 1 FROM @first AS b
    WHERE b.slot = r.slot AND b.order_key = r.order_key AND (b.seq < r.seq OR b.seq = r.seq AND b.id < r.id));
SELECT s.slot, (SELECT m.name FROM [dbo].[chanq__consumers] AS m WITH (READPAST, READCOMMITTEDLOCK) WHERE m.id = s.consumer) AS owner,
       c.messages, c.waiting, DATEDIFF_BIG(millisecond, c.enqueued_at, @now) AS oldest_ms,
       (SELECT TOP (1) k.order_key FROM @keys AS k WHERE k.slot = s.slot ORDER BY k.n DESC, k.order_key) AS top_key,
       CASE WHEN t.n IS NULL THEN CONVERT(bigint, 0) ELSE t.n END AS top_messages
FROM [dbo].[chanq__slots] AS s
CROSS APPLY (SELECT COUNT_BIG(*) AS messages, COUNT_BIG(r.waits) AS waiting, MIN(r.enqueued_at) AS enqueued_at FROM @first AS r WHERE r.slot = s.slot) AS c
CROSS APPLY (SELECT MAX(k.n) AS n FROM @keys AS k WHERE k.slot = s.slot) AS t
WHERE s.queue = 'orders'
ORDER BY s.slot;
