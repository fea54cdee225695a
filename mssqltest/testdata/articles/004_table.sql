-- Article 004: "Anti-Collision Work Queue Retrieval: an approach using GUIDs",
-- https://blog.bitsofgenius.com/?p=12, 30 September 2008.
SET ANSI_NULLS ON
GO
SET QUOTED_IDENTIFIER ON
GO
SET ANSI_PADDING ON
GO

CREATE TABLE [dbo].[Job_Queue] (
[ID] [bigint] IDENTITY(1,1) NOT NULL,
[Priority] [tinyint] NOT NULL CONSTRAINT [DF_Job_Queue_Priority]  DEFAULT ((255)),
[Available_Date] [datetime] NOT NULL CONSTRAINT [DF_Job_Queue_Available_Date]  DEFAULT (getdate()),
[Timeout_Date] [datetime] NULL,
[Attempts] [int] NOT NULL CONSTRAINT [DF_Job_Queue_Attempts]  DEFAULT ((0)),
[Processing_Mark] [uniqueidentifier] NULL,
[Processing_Server] [varchar](50) COLLATE SQL_Latin1_General_CP1_CI_AS NULL,
[Last_Attempt_Start_Date] [datetime] NULL,
[Last_Attempt_End_Date] [datetime] NULL,
[Payload] [varchar](100) NOT NULL CONSTRAINT [DF_Job_Queue_Payload] DEFAULT ('a piece of work in the queue')
CONSTRAINT [PK_Job_Queue] PRIMARY KEY CLUSTERED
(
[ID] ASC
) ON [PRIMARY]
) ON [PRIMARY]

GO

SET ANSI_PADDING OFF
GO
