UPDATE "public"."chanq_slots" AS s
SET member = NULL
FROM unnest($2::smallint[], $3::bigint[]) AS a (slot, fence)
WHERE s.queue = 'orders' AND s.slot = a.slot AND s.fence = a.fence AND s.member = $1::uuid
RETURNING s.slot, s.fence;
