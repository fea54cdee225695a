IF SCHEMA_ID(N'dbo') IS NULL
BEGIN
    THROW 51872, N'chanq: the schema [dbo] is missing or hidden from this login: create it first, chanq does not', 1;
END;
IF OBJECT_ID(N'[dbo].[chanq__queues]', N'U') IS NULL
    CREATE TABLE [dbo].[chanq__queues] (
        name varchar(40) NOT NULL,
        version int NOT NULL,
        min_version int NOT NULL CONSTRAINT [DF_chanq__queues__min_version] DEFAULT (1),
        features bigint NOT NULL CONSTRAINT [DF_chanq__queues__features] DEFAULT (0),
        kind smallint NOT NULL,
        slots smallint NOT NULL,
        holds bit NOT NULL, max_keys int NOT NULL, max_attempts int NOT NULL, max_body int NOT NULL, retain_ms bigint NOT NULL, retain_dead_ms bigint NOT NULL,
        paused bit NOT NULL,
        paused_at datetime2(3) NULL,
        paused_by nvarchar(400) NULL,
        pause_reason nvarchar(400) NULL,
        shard smallint NOT NULL,
        shards smallint NOT NULL,
        shard_set varchar(32) NOT NULL,
        redriven bigint NOT NULL CONSTRAINT [DF_chanq__queues__redriven] DEFAULT (0),
        created_at datetime2(3) NOT NULL,
        CONSTRAINT [PK_chanq__queues] PRIMARY KEY CLUSTERED (name) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
