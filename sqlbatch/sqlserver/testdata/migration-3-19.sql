IF OBJECT_ID(N'[dbo].[chanq__log]', N'U') IS NULL CREATE TABLE [dbo].[chanq__log] (
  id       nvarchar(400) NOT NULL PRIMARY KEY,
  queue    nvarchar(400) NOT NULL,
  at       bigint NOT NULL,
  actor    nvarchar(400) NOT NULL,
  what     nvarchar(400) NOT NULL,
  which    nvarchar(400) NOT NULL,
  reason   nvarchar(400) NOT NULL,
  ended_at bigint NULL,
  messages bigint NULL,
  error    nvarchar(400) NULL,
  UNIQUE (queue, id)
);
