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
        times0 bigint NOT NULL, times1 bigint NOT NULL, times2 bigint NOT NULL, times3 bigint NOT NULL, times4 bigint NOT NULL, times5 bigint NOT NULL, times6 bigint NOT NULL, times7 bigint NOT NULL, times8 bigint NOT NULL, times9 bigint NOT NULL, times10 bigint NOT NULL, times11 bigint NOT NULL, times12 bigint NOT NULL, times13 bigint NOT NULL, times14 bigint NOT NULL, times15 bigint NOT NULL, times16 bigint NOT NULL, times17 bigint NOT NULL, times18 bigint NOT NULL, times19 bigint NOT NULL, times20 bigint NOT NULL, times21 bigint NOT NULL, times22 bigint NOT NULL, times23 bigint NOT NULL, times24 bigint NOT NULL, times25 bigint NOT NULL, times26 bigint NOT NULL, times27 bigint NOT NULL, times28 bigint NOT NULL, times29 bigint NOT NULL,
        CONSTRAINT [PK_chanq__samples] PRIMARY KEY CLUSTERED (queue, step, at) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
