IF OBJECT_ID(N'[dbo].[chanq_orders]', N'U') IS NULL
BEGIN
    CREATE TABLE [dbo].[chanq_orders] (
        id binary(16) NOT NULL,
        priority smallint NOT NULL,
        visible_at datetime2(3) NOT NULL,
        enqueued_at datetime2(3) NOT NULL CONSTRAINT [DF_chanq_orders_enqueued_at] DEFAULT (SYSUTCDATETIME()),
        fence int NOT NULL,
        attempts int NOT NULL,
        dedup_key varbinary(200) NULL,
        leased_by nvarchar(200) NULL,
        headers varbinary(max) NULL,
        body varbinary(max) NOT NULL,
        last_error nvarchar(2000) NULL,
        CONSTRAINT [PK_chanq_orders] PRIMARY KEY CLUSTERED (id) WITH (STATISTICS_NORECOMPUTE = ON, ALLOW_PAGE_LOCKS = OFF)
    );
    ALTER TABLE [dbo].[chanq_orders] SET (LOCK_ESCALATION = DISABLE);
END;
