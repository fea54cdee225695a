IF OBJECT_ID(N'[dbo].[chanq__samples]', N'U') IS NULL
    CREATE TABLE [dbo].[chanq__samples] (
        queue varchar(40) NOT NULL,
        step int NOT NULL,
        at bigint NOT NULL,
        ready int NULL,
        scheduled int NULL,
        leased int NULL,
        dead int NULL,
        oldest bigint NULL,
        sent bigint NOT NULL,
        acked bigint NOT NULL,
        nacked bigint NOT NULL,
        died bigint NOT NULL,
        delivered bigint NOT NULL,
        waited bigint NOT NULL,
        CONSTRAINT [PK_chanq__samples] PRIMARY KEY CLUSTERED (queue, step, at) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
