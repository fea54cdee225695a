CREATE OR REPLACE FUNCTION "public"."chanq_orders__send"(body text DEFAULT NULL, dedup_key text DEFAULT NULL, headers text DEFAULT NULL, priority integer DEFAULT 0, delay interval DEFAULT '0', id uuid DEFAULT NULL, ttl interval DEFAULT NULL, bytes bytea DEFAULT NULL, type text DEFAULT NULL)
RETURNS uuid LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $chanq$
  INSERT INTO "public"."chanq_orders" AS q (id, priority, due_at, expires_at, dedup_key, type, headers, body)
  VALUES (coalesce($6, (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid), coalesce($4, 0), (extract(epoch FROM statement_timestamp() + coalesce($5, '0')) * 1000)::bigint,
    (extract(epoch FROM statement_timestamp() + $7) * 1000)::bigint, nullif($2, ''), nullif($9, ''), convert_to($3, 'UTF8'), coalesce($8, convert_to($1, 'UTF8')))
  RETURNING q.id
$chanq$;
