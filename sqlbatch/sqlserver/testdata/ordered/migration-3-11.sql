IF OBJECT_ID(N'[dbo].[chanq_orders__dead]', N'U') IS NULL
BEGIN
    CREATE TABLE [dbo].[chanq_orders__dead] (
        id binary(16) NOT NULL,
        priority smallint NOT NULL,
        fence bigint NOT NULL,
        attempts int NOT NULL,
        enqueued_at datetime2(3) NOT NULL,
        ended_at datetime2(3) NOT NULL,
        cause smallint NOT NULL,
        fingerprint bigint NULL,
        noticed_at datetime2(3) NULL CONSTRAINT [DF_chanq_orders__dead_noticed_at] DEFAULT ('19700101'),
        slot smallint NOT NULL,
        seq bigint NOT NULL,
        order_key varbinary(200) NULL,
        dedup_key varbinary(200) NULL,
        type varbinary(100) NULL,
        headers varbinary(max) NULL,
        body varbinary(max) NOT NULL,
        last_error nvarchar(2000) NULL,
        history nvarchar(2000) NULL,
        CONSTRAINT [PK_chanq_orders__dead] PRIMARY KEY CLUSTERED (id)
    );
    ALTER TABLE [dbo].[chanq_orders__dead] SET (LOCK_ESCALATION = DISABLE);
END;
