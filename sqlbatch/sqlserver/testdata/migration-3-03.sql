IF OBJECT_ID(N'[dbo].[chanq_orders]', N'U') IS NULL
BEGIN
    CREATE TABLE [dbo].[chanq_orders] (
        id binary(16) NOT NULL CONSTRAINT [DF_chanq_orders__id] DEFAULT (CONVERT(binary(6), DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME()))
            + CONVERT(binary(2), 28672 + CONVERT(int, SUBSTRING(CONVERT(binary(16), NEWID()), 1, 2)) % 4096)
            + SUBSTRING(CONVERT(binary(16), NEWID()), 9, 8)),
        priority smallint NOT NULL CONSTRAINT [DF_chanq_orders__priority] DEFAULT (0),
        due_at datetime2(3) NOT NULL CONSTRAINT [DF_chanq_orders__due_at] DEFAULT (SYSUTCDATETIME()),
        lease_until datetime2(3) NOT NULL CONSTRAINT [DF_chanq_orders__lease_until] DEFAULT ('19700101'),
        enqueued_at datetime2(3) NOT NULL CONSTRAINT [DF_chanq_orders__enqueued_at] DEFAULT (SYSUTCDATETIME()),
        expires_at datetime2(3) NULL,
        fence bigint NOT NULL CONSTRAINT [DF_chanq_orders__fence] DEFAULT (0),
        attempts int NOT NULL CONSTRAINT [DF_chanq_orders__attempts] DEFAULT (0),
        lapses smallint NOT NULL CONSTRAINT [DF_chanq_orders__lapses] DEFAULT (0),
        dedup_key varbinary(200) NULL,
        type varbinary(100) NULL,
        leased_by binary(16) NULL,
        headers varbinary(max) NULL,
        body varbinary(max) NOT NULL,
        last_error nvarchar(2000) NULL,
        history nvarchar(2000) NULL,
        CONSTRAINT [PK_chanq_orders] PRIMARY KEY CLUSTERED (id) WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF),
        CONSTRAINT [CK_chanq_orders__priority] CHECK (priority >= -1 AND priority <= 2),
        CONSTRAINT [CK_chanq_orders__values] CHECK (due_at >= '19700101' AND lease_until >= '19700101' AND enqueued_at >= '19700101' AND expires_at >= '19700101'
            AND lapses >= 0 AND attempts >= lapses + CASE WHEN leased_by IS NULL THEN 0 ELSE 1 END AND attempts <= 2000000000 AND fence >= 0 AND fence <= CONVERT(bigint, 0x7ce66c50e2840000)),
        CONSTRAINT [CK_chanq_orders__sizes] CHECK (DATALENGTH(body) <= 33554432 AND DATALENGTH(headers) <= 65536 AND DATALENGTH(dedup_key) > 0 AND DATALENGTH([type]) > 0
            AND CONVERT(nvarchar(100), CONVERT(varchar(100), [type])) COLLATE Latin1_General_BIN2 NOT LIKE N'%[^ -~]%')
    );
    ALTER TABLE [dbo].[chanq_orders] SET (LOCK_ESCALATION = DISABLE);
END;
