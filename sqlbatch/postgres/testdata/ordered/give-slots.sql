UPDATE "public"."chanq__slots" AS s
SET consumer = NULL, old = CASE WHEN a.doubt <> 0 THEN (SELECT ((last_value - CASE WHEN is_called THEN 0 ELSE 1 END + 1) << 20) - 1 AS drawn FROM "public"."chanq_orders__seq") ELSE s.old END
FROM unnest($2::smallint[], $3::bigint[], $4::integer[]) AS a (slot, fence, doubt)
WHERE s.queue = 'orders' AND s.slot = a.slot AND s.fence = a.fence AND s.consumer = $1::uuid
RETURNING s.slot, s.fence;
