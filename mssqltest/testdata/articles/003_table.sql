-- Article 003: "A Poor Man's Queue", 10 January 2019.
CREATE TABLE [Queue]
(
	[Id] INT IDENTITY(1,1) NOT NULL,
	[Status] TINYINT NOT NULL, /* 1: ready, 2: taken */
	[Message] VARBINARY(MAX)
)
