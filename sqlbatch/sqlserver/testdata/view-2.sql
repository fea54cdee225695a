CREATE OR ALTER VIEW [dbo].[chanq_orders__messages] AS
SELECT m.state, CONVERT(char(32), m.id, 2) AS id, m.priority, m.due_at, m.lease_until, m.enqueued_at, m.expires_at, m.ended_at, m.attempts,
       CONVERT(varchar(200), m.dedup_key) AS dedup_key, CONVERT(varchar(100), m.type) AS type,
       CASE WHEN SUBSTRING(m.headers, 2, 1) = 0x00 OR SUBSTRING(m.headers, 1, 2) = 0xFFFE THEN CONVERT(nvarchar(4000), m.headers) ELSE CONVERT(varchar(4000), m.headers) END AS headers,
       CASE WHEN SUBSTRING(m.body, 2, 1) = 0x00 OR SUBSTRING(m.body, 1, 2) = 0xFFFE THEN CONVERT(nvarchar(4000), m.body) ELSE CONVERT(varchar(4000), m.body) END AS body,
       m.bytes, m.last_error
FROM (
    SELECT CASE WHEN q.lease_until > SYSUTCDATETIME() THEN 'leased' WHEN q.due_at > SYSUTCDATETIME() THEN 'scheduled' ELSE 'ready' END AS state,
           q.id, q.priority, q.due_at, CASE WHEN q.leased_by IS NOT NULL THEN q.lease_until END AS lease_until,
           q.enqueued_at, q.expires_at, CONVERT(datetime2(3), NULL) AS ended_at, q.attempts, q.dedup_key, q.type,
           CONVERT(varbinary(4000), SUBSTRING(q.headers, 1, 4000)) AS headers, CONVERT(varbinary(4000), SUBSTRING(q.body, 1, 4000)) AS body, DATALENGTH(q.body) AS bytes, q.last_error
    FROM (VALUES (2), (1), (0), (-1)) AS p (priority)
    CROSS APPLY (
        SELECT TOP (1000) l.id, l.priority, l.due_at, l.lease_until, l.leased_by, l.enqueued_at, l.expires_at, l.attempts, l.dedup_key, l.type, l.headers, l.body, l.last_error
        FROM [dbo].[chanq_orders] AS l WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK)
        WHERE l.priority = p.priority ORDER BY l.due_at, l.id) AS q
    UNION ALL
    SELECT 'dead' AS state, d.id, d.priority, CONVERT(datetime2(3), NULL) AS due_at, CONVERT(datetime2(3), NULL) AS lease_until,
           d.enqueued_at, CONVERT(datetime2(3), NULL) AS expires_at, d.ended_at, d.attempts, d.dedup_key, d.type,
           CONVERT(varbinary(4000), SUBSTRING(d.headers, 1, 4000)) AS headers, CONVERT(varbinary(4000), SUBSTRING(d.body, 1, 4000)) AS body, DATALENGTH(d.body) AS bytes, d.last_error
    FROM (
        SELECT TOP (1000) e.id, e.priority, e.enqueued_at, e.ended_at, e.attempts, e.dedup_key, e.type, e.headers, e.body, e.last_error
        FROM [dbo].[chanq_orders__dead] AS e WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_ended]))
        ORDER BY e.ended_at DESC, e.id DESC) AS d
) AS m;
