-- Article 000 (untitled, without an address): a work queue on SQL Server 2005 and 2008.
-- Table and rows, run together as one batch.
CREATE TABLE [dbo].[work_queue](
[work_queue_id] [int] IDENTITY(1,1) NOT NULL,
[name] varchar(255) NOT NULL,
[processed_flag] bit NOT NULL,
CONSTRAINT [PK_work_queue] PRIMARY KEY CLUSTERED
(
[work_queue_id] ASC
)WITH (PAD_INDEX = OFF, STATISTICS_NORECOMPUTE = OFF, IGNORE_DUP_KEY = OFF, ALLOW_ROW_LOCKS = ON, ALLOW_PAGE_LOCKS = ON) ON [PRIMARY]
)
INSERT INTO work_queue (name, processed_flag)
SELECT 'A', 0
UNION ALL SELECT 'B', 0
UNION ALL SELECT 'C', 0
UNION ALL SELECT 'D', 0
UNION ALL SELECT 'E', 0
UNION ALL SELECT 'F', 0
UNION ALL SELECT 'G', 0
UNION ALL SELECT 'H', 0
UNION ALL SELECT 'I', 0
UNION ALL SELECT 'J', 0
UNION ALL SELECT 'K', 0
