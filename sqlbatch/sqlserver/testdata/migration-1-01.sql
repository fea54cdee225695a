IF SCHEMA_ID(N'dbo') IS NULL
BEGIN
    THROW 51872, N'chanq: the schema [dbo] is missing or hidden from this login: create it first, chanq does not', 1;
END;
IF OBJECT_ID(N'[dbo].[chanq__queues]', N'U') IS NULL
    CREATE TABLE [dbo].[chanq__queues] (
        name varchar(63) NOT NULL,
        version int NOT NULL,
        paused bit NOT NULL,
        slots smallint NOT NULL CONSTRAINT [DF_chanq__queues__slots] DEFAULT (0),
        holds bit NOT NULL CONSTRAINT [DF_chanq__queues__holds] DEFAULT (0),
        shard smallint NOT NULL CONSTRAINT [DF_chanq__queues__shard] DEFAULT (0),
        shards smallint NOT NULL CONSTRAINT [DF_chanq__queues__shards] DEFAULT (0),
        shard_set varchar(32) NOT NULL CONSTRAINT [DF_chanq__queues__shard_set] DEFAULT (''),
        redriven bigint NOT NULL CONSTRAINT [DF_chanq__queues__redriven] DEFAULT (0),
        created_at datetime2(3) NOT NULL,
        CONSTRAINT [PK_chanq__queues] PRIMARY KEY CLUSTERED (name) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
