IF OBJECT_ID(N'[dbo].[chanq_orders__done]', N'U') IS NULL
BEGIN
    CREATE TABLE [dbo].[chanq_orders__done] (
        id binary(16) NOT NULL,
        priority smallint NOT NULL,
        fence bigint NOT NULL,
        attempts int NOT NULL,
        enqueued_at datetime2(3) NOT NULL,
        ended_at datetime2(3) NOT NULL,
        outcome smallint NOT NULL,
        slot smallint NOT NULL,
        seq bigint NOT NULL,
        order_key varbinary(200) NULL,
        dedup_key varbinary(200) NULL,
        type varbinary(100) NULL,
        headers varbinary(max) NULL,
        body varbinary(max) NOT NULL,
        last_error nvarchar(2000) NULL,
        history nvarchar(2000) NULL,
        CONSTRAINT [PK_chanq_orders__done] PRIMARY KEY CLUSTERED (ended_at, id)
    );
    ALTER TABLE [dbo].[chanq_orders__done] SET (LOCK_ESCALATION = DISABLE);
END;
