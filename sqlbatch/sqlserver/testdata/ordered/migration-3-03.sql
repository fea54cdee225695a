IF OBJECT_ID(N'[dbo].[chanq__slots]', N'U') IS NULL
    CREATE TABLE [dbo].[chanq__slots] (
        queue varchar(40) NOT NULL,
        slot smallint NOT NULL,
        consumer binary(16) NULL,
        fence bigint NOT NULL,
        old bigint NOT NULL,
        CONSTRAINT [PK_chanq__slots] PRIMARY KEY CLUSTERED (queue, slot) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
