IF OBJECT_ID(N'[dbo].[chanq__heads]', N'U') IS NULL
    CREATE TABLE [dbo].[chanq__heads] (
        queue varchar(40) NOT NULL,
        priority smallint NOT NULL,
        place binary(24) NOT NULL,
        CONSTRAINT [PK_chanq__heads] PRIMARY KEY CLUSTERED (queue, priority) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
