CREATE OR REPLACE FUNCTION "public"."chanq_orders__send"(body text DEFAULT NULL, key text DEFAULT NULL, dedup_key text DEFAULT NULL, headers text DEFAULT NULL, id uuid DEFAULT NULL, ttl interval DEFAULT NULL, bytes bytea DEFAULT NULL, type text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $chanq$
DECLARE
  new_id uuid := coalesce($5, (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid);
  line bytea := coalesce(convert_to(nullif($2, ''), 'UTF8'), uuid_send(new_id));
  hash bigint := 2166136261;
  slots integer := (SELECT s.slots FROM "public"."chanq__queues" AS s WHERE s.name = 'orders');
  new_seq bigint := (SELECT nextval('"public"."chanq_orders__seq"'::regclass) FROM (SELECT pg_advisory_xact_lock_shared(1667788399, hashtext('"public"."chanq_orders"')) AS held OFFSET 0) AS s WHERE s.held IS NOT NULL) * 1048576;
BEGIN
  FOR i IN 0 .. length(line) - 1 LOOP
    hash := (hash # get_byte(line, i)) * 16777619 & 4294967295;
  END LOOP;
  INSERT INTO "public"."chanq_orders" (id, slot, seq, fence, expires_at, order_key, dedup_key, type, headers, body)
  VALUES (new_id, hash % slots, new_seq, new_seq, (extract(epoch FROM statement_timestamp() + $6) * 1000)::bigint, nullif($2, ''), nullif($3, ''), nullif($8, ''), convert_to($4, 'UTF8'), coalesce($7, convert_to($1, 'UTF8')));
  RETURN new_id;
END
$chanq$;
