SELECT (count(*) = 0)::integer AS empty
FROM (SELECT q.id FROM "public"."chanq_orders" AS q ORDER BY q.id DESC LIMIT 1) AS l;
