IF OBJECT_ID(N'[dbo].[chanq__consumers]', N'U') IS NULL
    CREATE TABLE [dbo].[chanq__consumers] (
        id binary(16) NOT NULL,
        queue varchar(40) NOT NULL,
        name nvarchar(200) NOT NULL,
        host nvarchar(200) NOT NULL,
        process int NOT NULL,
        since datetime2(3) NOT NULL,
        until datetime2(3) NOT NULL,
        heard_at datetime2(3) NULL,
        CONSTRAINT [PK_chanq__consumers] PRIMARY KEY CLUSTERED (id) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
