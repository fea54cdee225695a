INSERT INTO [dbo].[chanq__slots] WITH (ROWLOCK) (queue, slot, fence, old)
SELECT 'orders', x.i + y.i, 0, 0
FROM (VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)
WHERE x.i + y.i < 4 AND NOT EXISTS (SELECT 1 FROM [dbo].[chanq__slots] AS s WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) WHERE s.queue = 'orders' AND s.slot = x.i + y.i);
